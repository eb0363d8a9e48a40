"""Checks of a party before it takes part: its files, its state, its connection. `preflight` makes all of them."""
