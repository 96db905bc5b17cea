"""Coefficients of a linear model that is trained to rely less on its first feature."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import reliance as rl

X = jax.random.normal(jax.random.key(0), (200, 3))
y = X[:, 0] + X[:, 1]


def penalised(beta: jax.Array, penalty: float) -> jax.Array:
    """Squared error, and a share of what it is with the first feature of other rows."""

    def model(rows: jax.Array) -> jax.Array:
        return rows @ beta

    base = rl.functional.base_risk(model, X, y, loss="squared_error")
    return base + penalty * rl.functional.pairwise_risk(model, X, y, (0,), loss="squared_error")


gradient = jax.jit(jax.grad(penalised))
penalties = np.linspace(0.0, 2.0, 21)
found = []
for penalty in penalties:
    beta = jnp.zeros(3)
    for _ in range(200):
        beta = beta - 0.1 * gradient(beta, penalty)
    found.append(np.asarray(beta))

figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
for j, colour in enumerate(("#0072B2", "#E69F00", "#009E73")):
    ax.plot(penalties, np.asarray(found)[:, j], color=colour, label=f"x{j}")
ax.set_xlabel("penalty on the reliance on x0")
ax.set_ylabel("coefficient")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
