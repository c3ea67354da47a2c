"""The HTTP door: requests, output and files, and the monitor's reads passed through."""
