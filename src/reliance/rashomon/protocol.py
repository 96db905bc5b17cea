"""What a class of models is: its best model, and how little and how much its good models rely on a feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Array
from reliance._core.run import Run
from reliance.data.features import Feature
from reliance.data.rows import Rows
from reliance.rashomon.members import Members


@dataclass(frozen=True, eq=False)
class ClassData:
    """The rows that a class is judged on.

    Attributes
    ----------
    X : array (n, P)
        Floating numbers, for classes that compute with them.
    y : array (n,)
    key : int
        Of the random numbers (starts of a search).
    memory : int
        Bytes that may be allocated.
    rows : Rows, optional
        As they were given: listed models take also tables and several inputs.
    run : Run
        Who calls the models of a list.
    """

    X: Array
    y: Array
    key: int
    memory: int
    rows: Rows | None = None
    run: Run = field(default_factory=Run)

    def __reduce__(self) -> tuple[type[ClassData], tuple[Array, Array, int, int, Rows | None]]:
        return type(self), (self.X, self.y, self.key, self.memory, self.rows)  # who does the work is not sent


@dataclass(frozen=True, eq=False)
class Member:
    """A model of the class: a callable ``(m, P) -> (m,)`` in the namespace of X, and its mean loss on the rows."""

    model: Callable[[Array], Array]
    risk: float


@dataclass(frozen=True, eq=False)
class Range:
    """How far the reliance on one feature can be from one good model to another.

    Attributes
    ----------
    lower, upper : float
        Certified: no member of the class with at most the bound's risk relies less, or more. nan where nothing is
        certified.
    least, most : Member
        Members that were found, with the reliance they achieve.
    achieved_lower, achieved_upper : float
    spread : tuple of float or None
        How much the two achieved ends differed between the starts of a search.
    """

    lower: float
    upper: float
    least: Member
    most: Member
    achieved_lower: float
    achieved_upper: float
    spread: tuple[float, float] | None = None


class ModelClass(Protocol):
    """A class of models under a loss."""

    @property
    def loss(self) -> str:
        """The name of the loss that risks are means of."""
        ...

    def best(self, data: ClassData) -> Member:
        """The model of least risk, or the best that was found."""
        ...

    def contains(self, data: ClassData, model: object) -> Member:
        """The member that a user's reference model is; an error that says why if it is outside the class."""
        ...

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        """The range of each feature over the members whose risk is at most ``bound``.

        ``conditional``: only the part of a feature that the other columns do not predict (least squares with
        intercept, in-sample) is exchanged between rows. ``advance(1)`` after each feature. The range of a feature does
        not depend on the others: workers ask for some of them.
        """
        ...


@runtime_checkable
class ResampledClass(Protocol):
    """A class that knows its ends on samples of the rows without looking at the rows again."""

    def sample_ends(
        self,
        data: ClassData,
        counts: NDArray[np.float64],
        bounds: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        features: tuple[Feature, ...],
        compare: str,
    ) -> NDArray[np.float64] | None:
        """(B, p, 2): the ends on B samples, of which ``counts`` (B, n) says how often each row was drawn.

        ``bounds``: from the least risks (B,) in the samples to what good models may have there. None if the class
        cannot say: then the question is asked again for each sample.
        """
        ...


@runtime_checkable
class ListedClass(Protocol):
    """A class whose models are listed one by one, and take rows as they were given."""

    def members(
        self, data: ClassData, bound: float, features: tuple[Feature, ...], compare: str, conditional: bool
    ) -> Members:
        """Each model's risk and reliance."""
        ...

    def position(self, model: object) -> int:
        """Which model of the list a reference is: the object itself, or its name."""
        ...
