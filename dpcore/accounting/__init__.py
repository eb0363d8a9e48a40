"""Privacy accounting: sensitivity, composition, filters, and what a release with noise costs."""
