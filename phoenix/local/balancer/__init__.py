"""The embedded load balancer of a web department, and the source of its CPU signal."""
