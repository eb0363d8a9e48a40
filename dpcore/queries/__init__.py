"""Sum queries: what each kind computes over records, what a release costs, and what it protects."""
