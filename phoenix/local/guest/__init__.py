"""The guest: what runs inside a VM. It asks admission what to do, does it, streams the output and reports."""
