"""`rado learner`: ask queries, fetch releases, train, evaluate and predict."""
