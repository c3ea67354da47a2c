"""Who asks, from where, and what the audit keeps of it."""
