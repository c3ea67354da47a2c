"""Custody: who holds which host and runs which attempt, folded from the journal alike in every service."""
