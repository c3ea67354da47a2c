"""Admission's interface for guests: what a VM asks, hands in and reports."""
