"""
Over time
=========

Importances of a fixed model on batches of rows as they arrive. The bands hold at all times together: read them
after every batch if you like. In the last third of the batches the label no longer depends on the first feature.
"""

import numpy as np

import reliance as rl

rng = np.random.default_rng(0)
monitor = rl.Monitor(lambda X: X[:, 0] + 0.7 * X[:, 1], method="asymptotic", names=["age", "dose"], rng=0)
for week in range(30):
    X = rng.normal(size=(100, 2))
    y = (week < 20) * X[:, 0] + 0.7 * X[:, 1] + rng.normal(size=100)
    result = monitor.update(X, y)
result.plot()
