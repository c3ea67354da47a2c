"""The metrics for Prometheus: collected on a scrape, and what is near its end."""
