"""What the executor decides, pure: desired VMs against observed ones, as facts and calls that follow."""
