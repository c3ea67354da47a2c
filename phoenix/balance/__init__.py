"""What every load balancer of ours shares, the embedded one and the agent beside HAProxy: where instances are, how busy they
are, what is reported of them, and the signals."""
