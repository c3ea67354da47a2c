"""Bills: a price table, and what it makes of what departments used, lent and lost."""
