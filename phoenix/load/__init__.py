"""An open-loop HTTP load generator: requests at their time, whatever the answers (`phoenix load`)."""
