"""One query's way through a party: decided, computed, charged, uploaded."""
