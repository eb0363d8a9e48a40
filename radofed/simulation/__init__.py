"""Simulation: a federation without sockets, on one machine or a Ray cluster, to measure designs and learners.

Parties, coordinator and learner run the code of their packages (parties.answering.contribution, coordinator.aggregate,
learner.opening); only the wire is left out, and every random draw comes from a seed, so that a run can be repeated.
"""
