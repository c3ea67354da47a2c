"""Why jobs wait and when they start: the batch core asked, or run forward on a copy."""
