"""What the monitor knows, folded from the journal: jobs, accounts, levels of service, hosts and load over time.  Pure."""
