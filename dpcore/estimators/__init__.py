"""Linear classifiers that learn from releases, as scikit-learn estimators."""
