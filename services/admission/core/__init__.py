"""What admission decides, pure: who owns which job, what a unit needs and whether a host could hold it, roll-outs, warm VMs."""
