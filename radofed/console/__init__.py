"""The console: pages in a browser, on this machine alone, that show a node and do what its commands do."""
