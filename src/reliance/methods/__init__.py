"""The methods that measure a given model: short compositions of plan, loss, sums and inference."""
