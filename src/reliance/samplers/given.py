"""What is known when a feature is replaced, and how it is drawn then, in one value: ``given=rl.Given(...)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from reliance.samplers.draws import Sampler
from reliance.samplers.residual import resolve

Variables: TypeAlias = Sequence[str | int] | str


@dataclass(frozen=True, eq=False)
class Given:
    """The variables that stay alike when a feature is scrambled, and how its new values are drawn.

    Parameters
    ----------
    variables : list, "rest" or mapping
        G: names or indices of features and names of ``context`` variables; ``[]`` for none; ``"rest"`` for all other
        features. A mapping of names to such sets measures all of them with the same rows and random numbers.
    context : mapping or table, optional
        Variables that the model never saw: name -> (n,) or (n, k) array.
    sampler : str or Sampler
        How the feature is drawn given these variables. ``"auto"``: ``"leaves"`` for text, categories, dates and columns
        of two values; for other numbers the first of ``"gaussian"``, ``"splines"`` and ``"leaves"`` whose draws pass a
        check; ``result.routes`` says which it was. ``"gaussian"``: linear mean plus the residual of a donor row.
        ``"splines"``: the same with a curved mean. ``"residual"``: the same with any regressor, cross-fitted.
        ``"knn"``, ``"leaves"``: the value of a near row, or of a row in the same stratum. ``"knockoffs"``: as in the
        paper, which estimates something else. Or an object with ``fit``: see `reliance.samplers`.
    fit_on : (X_train, context_train), optional
        Rows that the sampler is fitted on, if not the evaluated ones.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> season = rng.normal(size=300)
    >>> sales, y = (season + 0.1 * rng.normal(size=300) for _ in range(2))
    >>> given = rl.Given(["season"], context={"season": season})
    >>> result = rl.relative_importance(lambda X: X[:, 0], sales[:, None], y, given=given, rng=0)
    >>> bool(result.values[0] < 0.1)  # once the season is known, sales add nothing
    True
    """

    variables: Variables | Mapping[str, Variables]
    context: object = None
    sampler: str | Sampler = "auto"
    fit_on: Sequence[object] | None = None

    def __post_init__(self) -> None:
        resolve(self.sampler)
        if self.fit_on is not None and (not isinstance(self.fit_on, tuple | list) or len(self.fit_on) != 2):
            raise TypeError(
                f"fit_on is a {type(self.fit_on).__name__}: pass (X_train, context_train), the second may be None"
            )


def as_given(given: object) -> Given:
    """Variables alone are given without context, to the default sampler."""
    return given if isinstance(given, Given) else Given(given)  # type: ignore[arg-type]  # checked where it is resolved
