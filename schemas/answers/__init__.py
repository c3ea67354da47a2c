"""Answers of the monitor's reads: what `schemas.reads` lists, as types (`base` has the rules)."""
