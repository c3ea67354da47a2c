"""HTTP and NATS: access, reads, sessions, the page and its stream."""
