"""InterGrid: leases with time slots, for which external ones make way (Salehi, Toosi and Buyya)."""
