"""The base of every HTTP server of the cloud: limits of connections, bodies, errors."""
