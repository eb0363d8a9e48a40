"""Files: one module reads them, one writes them durably, and keys, certificates and schemas build on these."""
