"""Descriptive statistics of the parties' rows: descriptions, cross tables, comparisons and correlations."""
