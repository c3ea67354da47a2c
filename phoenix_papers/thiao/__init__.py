"""Thiao: VMs on the cores that jobs of one thread leave idle."""
