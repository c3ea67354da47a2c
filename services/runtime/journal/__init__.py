"""The journal: appending behind the fence, reading, folding, snapshots, and the archive of what is trimmed."""
