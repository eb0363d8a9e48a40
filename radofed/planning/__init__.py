"""The cost of a query before it is sent: exact privacy, and ciphertexts, bytes and seconds.

Plans of designs need only row counts and sizes, no roster or key. Plans of what estimators ask, and of statistics, are
in radofed.planning.asked_queries and radofed.planning.asked_cost, which take longer to import.
"""
