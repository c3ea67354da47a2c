"""NATS: connecting, permissions, streams and objects, and how a request is answered."""
