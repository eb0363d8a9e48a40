"""An organisation's own Ray cluster: connects to it securely and runs one job at a time."""
