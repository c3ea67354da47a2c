"""Where the executor meets the world: polls, events, calls and their outcomes, and what it tells Prometheus."""
