"""Simulation: a federation without sockets, on one machine or a Ray cluster, to measure designs and estimators.

Parties, coordinator and learner run the code of their packages (parties.answering.contribution, coordinator.uploads,
learner.decryption); only the wire is left out. Every random draw comes from a seed, so a run can be repeated.
"""
