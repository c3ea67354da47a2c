"""The process hypervisor: a virtual machine is a local process group in its own room, under its own uid and cgroup."""
