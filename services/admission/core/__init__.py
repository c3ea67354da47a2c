"""What admission decides, pure: owners of jobs, what a unit needs and whether a host could hold it, roll-outs, warm VMs."""
