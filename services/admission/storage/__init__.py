"""The object store: what jobs carry and leave behind, how much each department may have, and when it is removed."""
