"""What refits give: the reliance of an algorithm on features, with the error of one of two named targets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.checks import warn
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
TARGETS = ("fitted models", "algorithm")
_BY_FEATURE = ("values", "replaced_risk", "folds", "models_error", "models_skewness", "algorithm_error")
_SKEWED = 0.3  # as for `Importance`: above it the interval may cover less than its level


_LEAVES = {"out": "each left out", "in": "each alone", "none": "each replaced"}
_KEPT = {
    "names": files.names("p"),
    **{name: files.floats("p") for name in _BY_FEATURE},
    "folds": files.floats("p", "J"),
    "compare": files.text("difference", "ratio", "share"),
    "base_risk": files.Kept("number"),
    "target": files.text(*TARGETS),
    **{name: files.Kept("count") for name in ("n", "models_freedom", "algorithm_freedom", "refits")},
    "method": files.text(),
    "loss": files.text(),
    "leave": files.text(*_LEAVES),
}


@dataclass(frozen=True, eq=False, repr=False)
class AlgorithmReliance(Result):
    """How much an algorithm, or the models that it fitted, relies on each of p features.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        The risk without the feature minus that with it, or over it (``compare``).
    compare : {"difference", "ratio"}
        Which of the two.
    base_risk : float
        Mean loss of the models that all features are compared with: with all features, or (``leave="in"``) with none.
    replaced_risk : array (p,)
        Mean loss without the feature, refitted or replaced; for ``leave="in"`` with this feature alone.
    target : {"fitted models", "algorithm"}
        What the errors, intervals and tests are about. "fitted models": these very models on new rows. "algorithm":
        models that the algorithm would fit on new training data of the same size.
    folds : array (p, J)
        The value of each split.
    models_error, models_skewness : arrays (p,)
        Standard error, and skewness of the estimate, for the fitted models (nan for a metric without losses of rows).
    algorithm_error : array (p,)
        Standard error for the algorithm: of cross-fitted influence values, Nadeau and Bengio's for a metric without
        losses of rows, or a jackknife's; nan where it was not measured.
    n, models_freedom, algorithm_freedom : int
        Rows measured, and the degrees of freedom of the two errors.
    refits : int
        How many models were fitted.
    method, loss, leave : str
        How it was measured; ``leave`` is "out", "in", or "none" where no feature was left out of a fit.
    """

    names: tuple[str, ...]
    values: Floats
    compare: str
    base_risk: float
    replaced_risk: Floats
    target: str
    folds: Floats
    models_error: Floats
    models_skewness: Floats
    algorithm_error: Floats
    n: int
    models_freedom: int
    algorithm_freedom: int
    refits: int
    method: str
    loss: str
    leave: str

    _kept = _KEPT

    # -----------------------------------------------------------------------------------------------------------------
    # Inference

    @property
    def std_error(self) -> Floats:
        """Standard errors (p,) for the target."""
        return self.algorithm_error if self.target == "algorithm" else self.models_error

    @property
    def degrees_of_freedom(self) -> int:
        return self.algorithm_freedom if self.target == "algorithm" else self.models_freedom

    def for_target(self, target: str) -> AlgorithmReliance:
        """The same values with the errors of another target, without a new fit."""
        check_target(target, self.folds.shape[1])
        if target == "algorithm" and np.isnan(self.algorithm_error).all():
            raise ValueError("the error for the algorithm was not measured: measure again with target='algorithm'")
        return dataclasses.replace(self, target=target)

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(p, 2)`` for the target; ratios on the logarithmic scale.

        "fitted models": from the rows, the hull of the t interval and Hall's. "algorithm": t with
        ``degrees_of_freedom``.
        """
        found = self._interval(level)
        skewed = [name for name, g in zip(self.names, self._gamma, strict=True) if abs(g) > _SKEWED]
        if skewed:
            warn(
                f"the losses of {export.listed(skewed)} are very skewed for {self.n} rows: the interval may cover less "
                "than its level; more rows help, or a loss with lighter tails: rl.losses.trimmed(...)"
            )
        return found

    @property
    def _gamma(self) -> Floats:
        return np.zeros(len(self.names)) if self.target == "algorithm" else self.models_skewness

    def _interval(self, level: float) -> Floats:
        """Without a word about what it rests on: tables and figures repeat no warning."""
        self._check_rows()
        df, ratio = self.degrees_of_freedom, self.compare == "ratio"
        return inference.interval(self.values, self.std_error, df, level, gamma=self._gamma, ratio=ratio)

    def test(self, alternative: str = "greater", adjust: str = "holm") -> TestResult:
        """The t tests of no reliance (a difference of 0, a ratio of 1), for the target.

        Parameters
        ----------
        alternative : {"greater", "less", "two-sided"}
            "greater": without the feature it is worse.
        adjust : {"holm", "bh", "none"}
            For testing several features at once.
        """
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        self._check_rows()
        df, ratio = self.degrees_of_freedom, self.compare == "ratio"
        statistic, p = inference.t_test(self.values, self.std_error, df, alternative, ratio)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def _check_rows(self) -> None:
        if self.target == "fitted models" and np.isnan(self.models_error).all():
            raise ValueError(
                "the target 'fitted models' needs losses of single rows, and test sets that share none: "
                f"loss={shown(self.loss)} in {self.folds.shape[1]} splits has no such error; use target='algorithm' "
                "with cv=, or give a metric its influence function, rl.Metric(value, influence)"
            )

    # -----------------------------------------------------------------------------------------------------------------
    # Tables

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per feature; ``p`` is Holm-adjusted."""
        bounds, p = self._uncertainty(level)
        columns: dict[str, object] = {"value": self.values, "lower": bounds[:, 0], "upper": bounds[:, 1]}
        columns |= {"std_error": self.std_error, "p": p, "replaced_risk": self.replaced_risk}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar", "box", "violin"}
            Bars with the target's intervals (``level=``, ``most=``), or the spread over splits (``most=``).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.REFITS, kind, self, ax, options)

    def _uncertainty(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Interval and adjusted p, nan where they cannot be had; never raises nor warns."""
        bounds = inference.known_interval(self, level)
        try:
            return bounds, self.test().p_adjusted
        except ValueError:
            return bounds, np.full(len(self.names), math.nan)

    def _table(self) -> export.Table:
        splits = self.folds.shape[1]
        where = f"{splits} splits" if splits > 1 else "one split"
        title = (
            f"{self.method}, {_LEAVES[self.leave]}: {self.compare} of {export.short(self.loss)}, n = {self.n}, "
            f"{where}, {self.refits} fits, "
            f"target: the {self.target}, base risk {self.base_risk:.4g}"
        )
        bounds, p = self._uncertainty()
        columns = {"value": self.values, "lower 95%": bounds[:, 0], "upper 95%": bounds[:, 1], "p (Holm)": p}
        return export.by_feature(title, self.names, columns, self.values, forms=("#.4g", "#.4g", "#.4g", ".2g"))


def check_target(target: object, splits: int) -> str:
    """One of the two targets; the algorithm's needs several splits."""
    if not isinstance(target, str) or target not in TARGETS:
        raise ValueError(f"target={shown(target)} is unknown: choose one of {', '.join(map(repr, TARGETS))}")
    if target == "algorithm" and splits < 2:
        raise ValueError(
            "target='algorithm' needs several fits of the same algorithm, and one test set has one: pass folds, cv=5, "
            "or take target='fitted models'"
        )
    return target


def chosen_target(target: str | None, splits: int) -> str:
    """The given target; by default the algorithm for several splits, the fitted models for one."""
    if target is None:
        return "algorithm" if splits > 1 else "fitted models"
    return check_target(target, splits)


def nadeau_bengio(fold_values: Floats, sizes: Sequence[tuple[int, int]]) -> Floats:
    """Standard errors (p,) of the mean of fold values (p, J): (1/J + n_test/n_train) S^2; nan for one fold.

    ``sizes`` are the numbers of training and test rows. Folds share training rows, so their means are correlated, which
    1/J alone would ignore.
    """
    folds = fold_values.shape[1]
    if folds < 2:
        return np.full(fold_values.shape[0], math.nan)
    share = np.mean([test / train for train, test in sizes])
    return np.asarray(np.sqrt((1.0 / folds + share) * np.var(fold_values, axis=1, ddof=1)))


def crossfitted_error(
    rows_error: Floats, fold_values: Floats, rows_variance: Floats, sizes: Sequence[tuple[int, int]]
) -> Floats:
    """Standard errors (p,) of a mean of cross-fitted influence values; nan for one fold.

    The values of rows have the variance of the estimate to the first order where fits converge (Williamson et al.
    2023); 1 + n_test / n_train counts that models were fitted on fewer rows. What the folds' means (p, J) vary beyond
    what their rows explain is the fits' own, and is added as in Nadeau and Bengio's variance.
    """
    folds = fold_values.shape[1]
    if folds < 2:
        return np.full(fold_values.shape[0], math.nan)
    share = np.mean([test / train for train, test in sizes])
    explained = rows_variance * np.mean([1.0 / test for _, test in sizes])
    beyond = np.maximum(np.var(fold_values, axis=1, ddof=1) - explained, 0.0)
    return np.asarray(np.sqrt((1.0 + share) * rows_error**2 + (1.0 / folds + share) * beyond))
