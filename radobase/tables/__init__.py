"""Tables in CSV and Parquet files, streamed in blocks of rows."""
