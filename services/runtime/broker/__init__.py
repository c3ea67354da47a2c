"""NATS: connecting, who may say what, streams and objects, and how a request is answered."""
