"""Material for researchers, in a distribution of its own (`radofed-research`, extra `research`). No role imports it.

theorems         the paper's statements, executable on rows (Nock, Patrini, Friedman, ICML 2015)
signature_sets   the sets of signatures that designs draw from, and exact sums over them
mechanisms       a curator's mechanisms, with exact samples and composition
quantiles        a curator's quantiles, beside those of a histogram with noise
erm              central private empirical risk minimisation: noisy descent, exponential sampling
exact_sampling   exponential sampling with a proved epsilon at any number of rows, output perturbation, localisation
erm_at_scale     the same for many rows: batch descent, and a walk with its own epsilon
erm_bounds       its bounds with their constants, upper and lower, and the tables that attain the lower ones
parity           a central private PAC learner of parities
pac_classes      central private PAC learners: points, thresholds, any finite class
who_learns_what  the protocol's values as linear forms: what each coalition learns, and what it can forge
"""
