"""InterGrid: leases with time slots, for which external ones make way (Salehi, Javadi and Buyya)."""
