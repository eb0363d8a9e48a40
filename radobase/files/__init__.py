"""Files: reading, durable writing, and schema files."""
