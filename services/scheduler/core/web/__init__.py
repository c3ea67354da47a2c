"""The web core (WS Server): signals, the number of instances, their hosts, releases."""
