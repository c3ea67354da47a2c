"""What is folded from the journal beside custody: jobs, accounts, levels of service, hosts and load over time."""
