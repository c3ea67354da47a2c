"""What the provisioner decides, pure: quotas, and which host goes to whom."""
