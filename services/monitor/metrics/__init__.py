"""What Prometheus is told: collected when somebody scrapes, and what is near its end."""
