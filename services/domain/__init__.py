"""Rules that services share, all of them pure: they import the wire (`schemas`) and each other, and nothing else of ours."""
