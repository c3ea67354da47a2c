"""Web scaling rules on a load of day and night: that of the Phoenix Cloud paper, and target tracking."""
