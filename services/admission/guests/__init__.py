"""The guests' side of the door: what a VM asks, hands in and reports."""
