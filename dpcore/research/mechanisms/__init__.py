"""Mechanisms for whoever holds the rows or counts: one answer each, with its privacy, its law and exact samples.

Neighbours differ in one record that is replaced. Samples come from an argument, a source of random bits, and are exact:
no floating-point number has a say in them (dpcore.randomness.coins). How long a release takes is not hidden.
"""
