"""Linear classifiers trained on releases, as scikit-learn estimators."""
