"""Kinds of sum query: what one record contributes, how long it is, how its total is decoded."""
