"""The numbers of custody's rules (S8): which of them this version knows, and what each has added.

What a number added holds only once a `config.adopted` with that number, or a higher one, has been folded: an old journal is
worth what it was worth when it was written.
"""

from __future__ import annotations

from typing import Final

RULES: Final = 6  # PROTOCOL S8: a change of any precondition is a new number
RULES_KNOWN: Final = (1, 2, 3, 4, 5, 6)  # a journal begins under older ones

# The first rules number under which …; that of a dimension of size is in its row (`Dimension.rules`: 5, GPUs)
BINDS_AGAIN: Final = 2  # a VM may be bound to one attempt after another
TERM_STOPS: Final = 3  # exit 0 of a script that its guest has told to end is no success
ARRAYS_AT_ONCE: Final = 4  # what is said of elements of an array is one fact
NAMED_STAYS: Final = 4  # a department is not closed while the configuration in force names it
BOOTS_ONCE: Final = 6  # a VM that has booted again in its attempt is of no use to it
CORDONS_HOLD: Final = 3  # nothing new is placed on a cordoned host, and one whose drain is due may be seized


class Incompatible(Exception):
    """The journal holds custody facts or rules that this version does not know: the service must stop (S8)."""
