"""What every role shares besides the wire: files, tables, clusters, logs and configuration."""
