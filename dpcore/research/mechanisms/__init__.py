"""Central mechanisms for a curator that holds the rows or counts: one answer each, with exact samples.

Neighbours differ in one record that is replaced. Samples use a source of random bits, passed as an argument, and are
exact: no floating-point number influences them (dpcore.randomness.noise). The running time of a release is not hidden.
"""
