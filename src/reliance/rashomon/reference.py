"""How much the reference itself relies on features, where the class knows it without evaluating a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance.data.features import Feature
from reliance.models import calling
from reliance.rashomon.members import Members
from reliance.rashomon.protocol import ClassData, Member

Floats = NDArray[np.float64]


def of_linear(member: Member, data: ClassData, features: Sequence[Feature], compare: str) -> Floats | None:
    """The all-pairs reliance (p,) of a linear model under squared error; None for other models.

    With z the part of the prediction that a feature makes and s = y - f + z, the mean over the pairs i != k of
    (s_i - z_k)^2 is mean(s^2) + mean(z^2) - 2 (sum s sum z - sum s z) / (n (n - 1)).
    """
    if not isinstance(member.model, calling.Linear):
        return None
    X, xp = data.X, arrays.namespace(data.X)
    coef = arrays.to_host(member.model.coef).astype(np.float64)
    residual = (arrays.to_host(data.y) - arrays.to_host(member.model(X))).astype(np.float64)
    n, risk = len(residual), float(np.mean(residual**2))
    found = np.empty(len(features))
    for k, feature in enumerate(features):
        chosen = arrays.from_host(np.asarray(feature.columns), xp, arrays.device(X), arrays.index_dtype(xp))
        z = arrays.to_host(xp.take(X, chosen, axis=1)).astype(np.float64) @ coef[list(feature.columns)]
        z = z - z.mean()  # an offset cancels in s_i - z_k only after it was rounded
        s = residual + z
        crossed = (s.sum() * z.sum() - s @ z) / (n * (n - 1.0))
        found[k] = np.mean(s**2) + np.mean(z**2) - 2.0 * crossed
    if compare == "difference":
        return found - risk
    return found / risk if risk > 0.0 else None


def of_listed(members: Members, risk: float) -> Floats | None:
    """The reliance (p,) of the model of a list that has the reference's risk; None if no measured one has it."""
    same = np.flatnonzero((members.risks == risk) & ~np.isnan(members.values).any(axis=1))
    return members.values[same[0]] if same.size else None
