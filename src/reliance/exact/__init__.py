"""Exact shortcuts: the moments of all n(n-1) pairs without n^2 evaluations, where the model or the data allow it."""
