"""Sources of random bits, and exact samplers: coins, discrete Gaussian and discrete Laplace noise."""
