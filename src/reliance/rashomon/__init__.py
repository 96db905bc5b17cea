"""How much every good model relies on a feature: classes of models, their solvers, and the question itself."""
