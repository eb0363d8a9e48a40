"""For researchers: no role imports this package.

paper            the paper's statements, executable on rows
mechanisms       a curator's mechanisms, with exact samples and composition
erm              central private empirical risk minimisation: noisy descent, exponential sampling
pac              central private PAC learners: points, thresholds, parities, any finite class
leaks            an adversary that reads records from unprotected rados
who_learns_what  the protocol's values as linear forms: what each coalition learns, and what it can forge
"""
