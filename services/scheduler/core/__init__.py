"""What schedulers decide, pure: jobs on hosts (`batch`), instances and their number (`web`), by `policies`, on `state`."""
