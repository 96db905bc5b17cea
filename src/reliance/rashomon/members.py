"""The models of a list, one by one: risks, reliances, and their distribution over samples of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import HostArray
from reliance.results import files
from reliance.results.records import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Members(Record):
    """The models of a finite class, one by one.

    Attributes
    ----------
    names : tuple of str
        The M models.
    risks : array (M,)
    inside : boolean array (M,)
        Whether they are in the Rashomon set.
    values : array (M, p)
        Their reliance on each feature; nan for models that were not measured, being outside.
    sample_values, sample_risks, sample_inside : arrays (B, M, p), (B, M), (B, M), or None
        The same on B bootstrap samples of the rows (``FiniteClass(bootstrap=B)``).
    drawn_values, drawn_samples : arrays (R, p), (R,), or None
        Where the good models are searched again on bootstrap samples (`reliance.TreeClass` with ``uncertainty=B``): the
        reliance of each good model of each sample, and the sample's number.
    """

    names: tuple[str, ...]
    risks: Floats
    inside: NDArray[np.bool_]
    values: Floats
    sample_values: Floats | None = None
    sample_risks: Floats | None = None
    sample_inside: NDArray[np.bool_] | None = None
    drawn_values: Floats | None = None
    drawn_samples: NDArray[np.int64] | None = None

    _kept: ClassVar[files.Fields] = {
        "names": files.names("M"),
        "risks": files.floats("M"),
        "inside": files.Kept("flags", ("M",)),
        "values": files.floats("M", "p"),
        "sample_values": files.floats("B", "M", "p", optional=True),
        "sample_risks": files.floats("B", "M", optional=True),
        "sample_inside": files.Kept("flags", ("B", "M"), optional=True),
        "drawn_values": files.floats("R", "p", optional=True),
        "drawn_samples": files.Kept("counts", ("R",), optional=True),
    }

    def resampled(self, reference: int | None, scale: float, shift: float) -> Members:
        """With who is in the set of each sample: risk <= scale * (risk of the reference, or of the best) + shift."""
        if self.sample_risks is None:
            return self
        against = self.sample_risks.min(axis=1) if reference is None else self.sample_risks[:, reference]
        inside = self.sample_risks <= scale * against[:, None] + shift
        return replace(self, sample_inside=inside)

    def distribution(self, feature: int) -> tuple[Floats, Floats]:
        """Values of one feature over samples and their good models, and their weights, which sum to 1.

        Each sample of the rows counts equally, and within it each model of its Rashomon set: the Rashomon importance
        distribution of Donnelly et al. (2023).
        """
        if self.drawn_values is not None and self.drawn_samples is not None:
            _, which, many = np.unique(self.drawn_samples, return_inverse=True, return_counts=True)
            return self.drawn_values[:, feature], 1.0 / (many[which] * len(many))
        if self.sample_values is None or self.sample_inside is None:
            raise ValueError(
                "there are no samples of the rows: pass FiniteClass(models, bootstrap=500), or uncertainty=100 with a "
                "TreeClass"
            )
        inside = self.sample_inside
        counts = inside.sum(axis=1, keepdims=True)
        weights = np.where(inside, 1.0 / np.maximum(counts, 1), 0.0) / max(int(np.sum(counts > 0)), 1)
        return self.sample_values[:, :, feature][inside], weights[inside]

    def drawn(self, values: Sequence[Floats]) -> Members:
        """With the reliance (M', p) of the good models of each sample of the rows."""
        which = np.repeat(np.arange(len(values)), [len(one) for one in values])
        return replace(self, drawn_values=np.concatenate(values), drawn_samples=which)

    def end_errors(self) -> Floats | None:
        """(p, 2): the spread of the least and the largest reliance over samples of the rows; None without samples."""
        if self.sample_values is None or self.sample_inside is None:
            return None
        some = self.sample_inside.any(axis=1)
        inside = self.sample_inside[some][:, :, None]
        values = self.sample_values[some]
        ends = [np.where(inside, values, np.inf).min(axis=1), np.where(inside, values, -np.inf).max(axis=1)]
        with np.errstate(invalid="ignore"):  # ratios to a sample's risk of 0 are infinite: no spread is known
            return np.stack([np.std(end, axis=0, ddof=1) for end in ends], axis=1) if some.sum() > 1 else None

    def quantiles(self, levels: Sequence[float] | HostArray = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles (p, len(levels)) of each feature's `distribution`."""
        return np.stack([_quantiles(*self.distribution(j), np.asarray(levels)) for j in range(self.values.shape[1])])


def _quantiles(values: Floats, weights: Floats, levels: Floats) -> Floats:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return np.asarray(values[order][np.minimum(np.searchsorted(reached, levels * reached[-1]), len(values) - 1)])
