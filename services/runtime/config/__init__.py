"""The configuration file: its form, what its parts mean, and the files that it names."""
