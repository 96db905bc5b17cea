"""What the classes of `reliance.model_classes` are made of: the solvers behind class reliance."""
