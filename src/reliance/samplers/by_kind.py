"""A sampler for each feature by its kind: numbers are drawn by one, categories and columns of two values by another."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance.samplers.draws import FittedSampler, Sampler
from reliance.samplers.neighbours import Leaves
from reliance.samplers.residual import Gaussian


@dataclass(frozen=True, eq=False)
class ByKind:
    """The default of `relative_importance`, ``sampler="auto"``: a sampler that fits the feature's type.

    Parameters
    ----------
    numbers : Sampler
        Of columns of numbers.
    categories : Sampler
        Of columns that hold text, categories or dates, as codes; it must take values from other rows.
    coded : tuple of int
        Which columns hold such codes; `relative_importance` knows them from the table.
    two_values : bool
        Whether columns of two values are categories, too: a mean plus a residual is neither of the two.
    """

    numbers: Sampler = field(default_factory=Gaussian)
    categories: Sampler = field(default_factory=Leaves)
    coded: tuple[int, ...] = ()
    two_values: bool = True

    def for_target(self, X: Array, target: tuple[int, ...]) -> Sampler:
        """The one that draws these columns."""
        if set(target) & set(self.coded):
            return self.categories
        two = self.two_values and any(_has_two_values(X, column) for column in target)
        return self.categories if two else self.numbers

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedSampler:
        return self.for_target(X, target).fit(X, target, given)


def _has_two_values(X: Array, column: int) -> bool:
    return len(np.unique(arrays.to_host(X[:, column]))) == 2
