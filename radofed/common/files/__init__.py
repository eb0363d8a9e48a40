"""Files: one module reads them, one writes them durably, and one reads schemas."""
