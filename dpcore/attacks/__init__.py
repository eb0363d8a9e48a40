"""Attacks on releases, played on known rows: what an adversary gets, beside what epsilon allows. One file for each."""
