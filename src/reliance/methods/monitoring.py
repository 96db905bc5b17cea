"""Rows that arrive over time: importances of a fixed model, with intervals that may be read after every batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core.arrays import Array, namespace
from reliance._core.checks import check_choice
from reliance._core.kinds import Operand
from reliance._core.run import Run
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import listed, shown
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.inference.sequences import Asymptotic, EmpiricalBernstein
from reliance.inference.sequences import Sequence as Intervals
from reliance.losses import functions
from reliance.losses.functions import Loss, Metric
from reliance.methods.replacement import model_reliance, permutation_importance
from reliance.methods.signatures import Watching
from reliance.results.importance import Importance
from reliance.results.monitored import Monitored

Floats = NDArray[np.float64]
# Losses that cannot be larger.
_BOUNDS = {"zero_one": 1.0}


class Monitor:
    """Importances of a fixed model on rows that arrive in batches, with intervals that hold at all times together.

    An interval of `permutation_importance` is right 95% of the time if it is read once. Read after every batch, some of
    them will be wrong sooner or later. The intervals of a monitor are a *confidence sequence*: with the probability
    ``level`` all of them are right, however often they are read and whenever you stop.

    Parameters
    ----------
    model : callable, scikit-learn estimator or torch.nn.Module
        The fitted model, which stays the same.
    loss : str, callable or Loss, optional
        A loss of each row, as in `permutation_importance`. ``method="bounded"`` needs its name.
    bound : float, optional
        For ``method="bounded"``: the largest loss of a row. Larger ones are cut to it, and what is measured is the
        importance under the loss that is cut. ``"zero_one"`` is bounded by 1 without it.
    method : {"bounded", "asymptotic"}
        "bounded": exact for any number of rows. Rows are matched in pairs that lend each other the feature, and their
        changes, which are independent and bounded, have empirical Bernstein intervals. "asymptotic": for losses without
        a bound, and narrower; each batch is measured as by `permutation_importance`, and the intervals are right up to
        a normal approximation, for which a few hundred rows should have arrived before the first is read.
    level : float
        Of the intervals of each feature, at all times together.
    features, names, rng, run
        As in `permutation_importance`.

    Notes
    -----
    Batches must be independent rows, and the model must not be fitted to them. Where the importance changes over time,
    an interval is about the mean of the importances so far, weighted as the estimate is; ``result.drifted`` says for
    which features two intervals exclude each other.

    References
    ----------
    Waudby-Smith, I., Ramdas, A. (2024). Estimating means of bounded random variables by betting. JRSS B 86, 1-27.
    Waudby-Smith, I., Arbour, D., Sinha, R., Kennedy, E., Ramdas, A. (2024). Time-uniform central limit theory and
    asymptotic confidence sequences. Annals of Statistics 52, 2613-2640.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> monitor = rl.Monitor(lambda X: (X[:, 0] > 0) * 1, loss="zero_one", rng=0)
    >>> for day in range(10):
    ...     X = rng.normal(size=(200, 2))
    ...     result = monitor.update(X, (X[:, 0] + 0.5 * rng.normal(size=200) > 0) * 1)
    >>> (result.interval()[:, 0] > 0).tolist(), result.drifted.tolist()
    ([True, False], [False, False])
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        loss: LossLike | None = None,
        bound: float | None = None,
        method: str = "bounded",
        level: float = 0.95,
        features: FeaturesLike = None,
        names: Sequence[str] | None = None,
        rng: RandomState = None,
        run: Run | None = None,
    ) -> None:
        check_choice(method, tuple(_MEASURES), "method")
        inference.check_level(level)
        self._measure = _MEASURES[method](loss, bound, float(level))
        self._model = model
        self._options: Watching = {"features": features, "names": names, "run": run}
        self._level, self._method, self._key = float(level), method, resolve_key(rng)
        self._sequence: Intervals | None = None
        self._result: Monitored | None = None

    @property
    def result(self) -> Monitored:
        """What was found so far."""
        if self._result is None:
            raise ValueError("no rows have arrived yet: call update(X, y) first")
        return self._result

    def update(self, X: DataLike, y: DataLike | None = None) -> Monitored:
        """With a new batch of rows; returns the result of all batches so far.

        Parameters
        ----------
        X : array (n, ...), table, or tuple or dict of arrays
            New rows, of the same columns as before.
        y : array (n, ...)
            Their labels.
        """
        before = self._result
        number = 0 if before is None else len(before.rows)
        key = (self._key + number) % 2**128
        found = self._measure(self._model, X, y, key, **self._options)
        if before is not None and found.result.names != before.names:
            raise ValueError(
                f"this batch has the features {listed(found.result.names, 3)}, those before had "
                f"{listed(before.names, 3)}: they must be the same"
            )
        started = self._measure.started(len(found.result.names)) if self._sequence is None else self._sequence
        sequence = started.update(found.units)
        lower, upper = sequence.interval().T
        new = {"running": sequence.value, "lower": lower, "upper": upper, "by_batch": found.result.values}
        history = {
            name: value[None, :] if before is None else np.concatenate([getattr(before, name), value[None, :]])
            for name, value in new.items()
        }
        rows = np.asarray([found.result.n], dtype=np.int64)
        self._sequence = sequence
        self._result = Monitored(
            names=found.result.names,
            values=sequence.value,
            **history,
            rows=rows if before is None else np.concatenate([before.rows, rows]),
            level=self._level,
            method=self._method,
            loss=found.result.loss,
            key=self._key,
        )
        return self._result


# ---------------------------------------------------------------------------------------------------------------------
# One batch


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch's importances, and values ``(p, m)`` of independent units whose means they are."""

    result: Importance
    units: Floats


@dataclass(frozen=True)
class _Cut:
    """Losses of rows, at most ``bound`` and at least 0."""

    rows: Callable[[Operand, Operand], Array]
    bound: float

    def __call__(self, y: Operand, prediction: Operand) -> Array:
        losses = self.rows(y, prediction)
        xp = namespace(losses)
        losses = xp.where(losses > self.bound, xp.full_like(losses, self.bound), losses)
        return xp.where(losses < 0.0, xp.zeros_like(losses), losses)


class _Bounded:
    """Pairs of rows that lend each other the feature: independent units, whose changes are at most the bound."""

    def __init__(self, loss: LossLike | None, bound: float | None, level: float) -> None:
        if loss is None:
            raise ValueError("method='bounded' needs the name of a loss, and its bound: pass loss=, or 'asymptotic'")
        own = _of_rows(loss)
        known = _BOUNDS.get(own.name)
        if bound is None and known is None:
            raise ValueError(
                f"loss={shown(own.name)} has no bound of its own: pass bound=, to which larger losses are cut, or "
                "method='asymptotic'"
            )
        if bound is not None and not (_is_number(bound) and 0.0 < bound < math.inf):
            raise ValueError(f"bound={shown(bound)}: pass the largest loss of a row, a positive number")
        if bound is not None and known is not None:
            raise ValueError(f"bound={shown(bound)}: loss={shown(own.name)} is at most {known:g}; leave bound out")
        self.bound, self.level, self.loss = float(known or bound or 1.0), level, own
        if known is None:
            self.loss = replace(own, name=f"{own.name} up to {self.bound:g}", rows=_Cut(own.rows, self.bound))

    def started(self, count: int) -> Intervals:
        return EmpiricalBernstein.of(count, -self.bound, self.bound, self.level)

    def __call__(
        self, model: ModelLike, X: DataLike, y: DataLike | None, key: int, **options: Unpack[Watching]
    ) -> _Batch:
        found = model_reliance(
            model, X, y, pairs="halves", compare="difference", loss=self.loss, keep="rows", rng=key, **options
        )
        assert found.unit_values is not None  # halves have pairs
        return _Batch(found, found.unit_values)


class _Unbounded:
    """All rows as by permutation importance: what each adds to the estimate, as borrower and as lender."""

    def __init__(self, loss: LossLike | None, bound: float | None, level: float) -> None:
        if bound is not None:
            raise ValueError(f"bound={shown(bound)} is for method='bounded': leave it out")
        self.loss, self.level = None if loss is None else _of_rows(loss), level

    def started(self, count: int) -> Intervals:
        return Asymptotic.of(count, self.level)

    def __call__(
        self, model: ModelLike, X: DataLike, y: DataLike | None, key: int, **options: Unpack[Watching]
    ) -> _Batch:
        found = permutation_importance(model, X, y, loss=self.loss, keep="influence", rng=key, **options)
        if found.influence is None or found.influence.rows is None:
            raise ValueError("this batch does not say how far its rows move the importances: it has too few rows")
        psi = found.influence.rows
        return _Batch(found, found.values[:, None] + psi - psi.mean(axis=1, keepdims=True))


_MEASURES: dict[str, type[_Bounded] | type[_Unbounded]] = {"bounded": _Bounded, "asymptotic": _Unbounded}


def _of_rows(loss: LossLike) -> Loss:
    if isinstance(loss, list | tuple | dict):
        raise TypeError(f"loss={shown(loss)} names several: watch one loss with a monitor")
    own = functions.resolve(loss)
    if isinstance(own, Metric):
        raise TypeError(f"loss={shown(own.name)} is a metric of all rows: pass a loss of single rows")
    return own


def _is_number(value: object) -> bool:
    return isinstance(value, float | int | np.number) and not isinstance(value, bool)
