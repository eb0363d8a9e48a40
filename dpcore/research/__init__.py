"""For researchers: no role imports anything here.

paper        the paper's statements, executable on rows at hand
mechanisms   a curator's mechanisms, with exact samples and composition
erm          private empirical risk minimisation where the rows are: noisy descent, exponential sampling
pac          private PAC learners where the rows are: points, thresholds, parities, any finite class
leaks        what an adversary can read from unprotected rados
"""
