"""Statistical queries: accuracy of their answers, rows that they need, and correction for random label noise."""
