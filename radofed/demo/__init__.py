"""`rado demo`: a whole federation on one machine, with real processes, real encryption and real transport."""
