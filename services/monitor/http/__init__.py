"""HTTP and NATS: who may read, reads, sessions, the page and its stream."""
