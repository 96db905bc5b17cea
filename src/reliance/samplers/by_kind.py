"""A sampler for each feature by its kind: numbers are drawn by one, categories and columns of two values by another."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reliance._core import arrays
from reliance._core.kinds import Array
from reliance.samplers.draws import FittedSampler, Sampler
from reliance.samplers.neighbours import Leaves
from reliance.samplers.residual import Gaussian
from reliance.samplers.splines import Splines


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
    or_numbers : tuple of Sampler
        What is tried of numbers, one after the other, where the sampler before is found to be wrong.
    """

    numbers: Sampler = field(default_factory=Gaussian)
    categories: Sampler = field(default_factory=Leaves)
    coded: tuple[int, ...] = ()
    two_values: bool = True
    or_numbers: tuple[Sampler, ...] = (Splines(), Leaves())

    def candidates(self, X: Array, target: tuple[int, ...]) -> tuple[Sampler, ...]:
        """Those that may draw these columns, the first one first."""
        two = self.two_values and any(_has_two_values(X, column) for column in target)
        if two or set(target) & set(self.coded):
            return (self.categories,)
        return (self.numbers, *self.or_numbers)

    def fit(self, X: Array, target: tuple[int, ...], given: tuple[int, ...]) -> FittedSampler:
        return self.candidates(X, target)[0].fit(X, target, given)


def _has_two_values(X: Array, column: int) -> bool:
    return len(np.unique(arrays.to_host(X[:, column]))) == 2
