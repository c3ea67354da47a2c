"""What is derived from custody and from jobs, and what policies look at: room, the queue, what will be free."""
