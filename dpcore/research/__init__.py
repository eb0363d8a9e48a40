"""Material for researchers, in a distribution of its own (`radofed-research`, extra `research`). No role imports it.

paper            the paper's statements, executable on rows
mechanisms       a curator's mechanisms, with exact samples and composition
erm              central private empirical risk minimisation: noisy descent, exponential sampling
pac              central private PAC learners: points, thresholds, parities, any finite class
leaks            an adversary that reads records from unprotected rados
who_learns_what  the protocol's values as linear forms: what each coalition learns, and what it can forge
"""
