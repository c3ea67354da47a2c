"""Why things are as they are, and how they came to be so."""
