"""How a party answers a query: decide, compute, charge, upload."""
