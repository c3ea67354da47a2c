"""OpenNebula through pyone: clients, templates, pools that are read again and again, errors by name."""
