"""Losses with and without a feature, row by row: their contrast, and its error for each of the two targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance._core.streams import Indices
from reliance.inference import variance
from reliance.refit.splits import Split
from reliance.results.algorithm import AlgorithmReliance, crossfitted_error, nadeau_bengio

Floats = NDArray[np.float64]


class Measured(NamedTuple):
    """The N rows measured, split after split: which of the m distinct rows each is, its split, and its weight."""

    place: Indices
    split: Indices
    weights: Floats
    sizes: tuple[tuple[int, int], ...]

    @property
    def distinct(self) -> int:
        return int(self.place.max()) + 1


class Contrast(NamedTuple):
    """Of one feature: its value, that of each split (J,), the splits' deviations (J,), and the error for the models.

    ``rows_variance`` is the variance of what single rows add to the error.
    """

    value: float
    folds: Floats
    deviations: Floats
    models_error: float
    models_skewness: float
    rows_variance: float


def measured_rows(parts: Sequence[Split], weights: Floats | None) -> Measured:
    rows = np.concatenate([part.test for part in parts])
    split = np.repeat(np.arange(len(parts)), [part.test.size for part in parts])
    sizes = tuple((part.train.size, part.test.size) for part in parts)
    w = np.ones(rows.size) if weights is None else weights[rows]
    return Measured(np.unique(rows, return_inverse=True)[1], split, w, sizes)


def contrast(without: Floats, given: Floats, at: Measured, compare: str) -> Contrast:
    """The mean loss without a feature against that with it, both (N,).

    With D the paired differences, h_i = (w_i D_i - x u_i) / mean(u) is what row i adds to the error (`variance`), u the
    weights, or for ratios weights times losses. Its spread over rows is the error for the fitted models; with that of
    its means over splits it is the error for the algorithm.
    """
    w, change, null = at.weights, without - given, inference.null_value(compare)
    unit = w * given if compare == "ratio" else w
    if compare == "ratio" and np.mean(unit) <= 0.0:
        raise ValueError(
            f"compare='ratio' divides by the risk, which is {inference.risk(given, w):g}, not above 0: use "
            "compare='difference'"
        )
    nothing = np.zeros_like(change)
    h = variance.kernel(change, nothing, np.asarray(np.sum((w * change) ** 2)), w, unit, nothing, 1)
    rows, size, m = arrays.to_host(h.rows), np.bincount(at.split), at.distinct
    psi = np.bincount(at.place, rows) * (m / change.size)  # a row that several splits test is one row
    spread = np.var(psi, ddof=1) / m
    own = np.bincount(at.split, unit)
    own = np.where(own > 0.0, own, math.nan)  # a split's own risk may be 0, or below
    folds = null + np.bincount(at.split, w * change) / own
    return Contrast(
        value=null + float(h.excess),
        folds=folds,
        deviations=np.bincount(at.split, rows) / size,
        models_error=math.sqrt(spread),
        models_skewness=float(variance.skewness(psi, np.asarray(spread))),
        rows_variance=float(np.var(rows, ddof=1)),
    )


class Described(TypedDict):
    """What a result says of itself."""

    target: str
    refits: int
    method: str
    loss: str


def result_of(
    names: Sequence[str],
    reference: Floats,
    refitted: Sequence[Floats],
    at: Measured,
    *,
    compare: str,
    leave: str,
    per_row: bool,
    **fields: Unpack[Described],
) -> AlgorithmReliance:
    """The result of p features: losses (N,) of the reference, and of each feature's refits."""
    pairs = [(one, reference) if leave == "out" else (reference, one) for one in refitted]
    found = [contrast(without, given, at, compare) for without, given in pairs]
    unknown, errors = np.full(len(found), math.nan), np.asarray([one.models_error for one in found])
    deviations = np.stack([one.deviations for one in found])
    within = np.asarray([one.rows_variance for one in found]) if per_row else None
    return AlgorithmReliance(
        names=tuple(names),
        values=np.asarray([one.value for one in found]),
        compare=compare,
        base_risk=inference.risk(reference, at.weights),
        replaced_risk=np.asarray([inference.risk(one, at.weights) for one in refitted]),
        folds=np.stack([one.folds for one in found]),
        models_error=errors if per_row else unknown,
        models_skewness=np.asarray([one.models_skewness for one in found]) if per_row else unknown,
        algorithm_error=nadeau_bengio(deviations, at.sizes)
        if within is None
        else crossfitted_error(errors, deviations, within, at.sizes),
        n=at.distinct,
        models_freedom=at.distinct - 1,
        algorithm_freedom=at.distinct - 1 if per_row else max(len(at.sizes) - 1, 1),
        leave=leave,
        **fields,
    )
