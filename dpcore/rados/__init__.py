"""Edges, signatures and their designs, the rado kernel, and the losses."""
