"""Tables from files: CSV and Parquet, streamed in blocks of rows."""
