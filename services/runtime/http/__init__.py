"""What every HTTP server of the cloud stands on: who may hold a connection and for how long, bodies, errors."""
