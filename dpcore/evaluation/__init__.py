"""How good a classifier is on records that nobody sees: error, calibration and ROC from noisy counts."""
