"""Sum queries: what may be asked of records, what a release costs, and what it protects."""
