"""Callers, their addresses, and what the audit keeps of them."""
