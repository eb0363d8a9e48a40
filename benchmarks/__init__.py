"""Benchmarks against the alternatives that a user would pick; README.md explains each figure."""
