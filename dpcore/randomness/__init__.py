"""Sources of random bits, and exact samples from them: coins, discrete Gaussian and discrete Laplace noise."""
