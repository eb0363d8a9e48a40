"""Tables from databases: PostgreSQL and SQLite through ADBC, and DuckDB. Each driver is imported when it is used."""
