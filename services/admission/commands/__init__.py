"""What people ask for, by noun: a request in, facts and an answer out, whichever door it came through."""
