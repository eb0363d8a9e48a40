"""Evaluation of a classifier on records that no one sees: error, calibration and ROC from noisy counts."""
