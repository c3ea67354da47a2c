"""What load balancers and instances say of the load, made into one observation.  No I/O; the clock is given."""
