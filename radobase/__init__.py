"""Code that all roles share besides the wire: files, tables, clusters, logs and configuration."""
