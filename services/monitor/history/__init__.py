"""The history in SQLite, made again with the same result, and the archive of what is trimmed from the journal."""
