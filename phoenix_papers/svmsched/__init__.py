"""SVMSched: services that share a cluster (R. Chakode, thesis, Univ. Grenoble 2012)."""
