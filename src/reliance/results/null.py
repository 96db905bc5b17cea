"""What permuted labels say about an importance: its null distribution, p-values, false discovery rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reliance import inference, plots
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
FITS = ("normal", "lognormal", "gamma")
METHODS = ("empirical", *FITS)
_KEPT = {
    "names": files.names("p"),
    "values": files.floats("p"),
    "null": files.floats("p", "R"),
    "n": files.Kept("count"),
    "key": files.Kept("key"),
    "measure": files.text(),
}


@dataclass(frozen=True, eq=False, repr=False)
class NullImportance(Result):
    """Importances of p features, and what they are when the labels are permuted and the model is fitted again.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        Importances under the labels as they are.
    null : array (p, R)
        Importances in each of R rounds of permuted labels.
    n, key : int
        Rows, and the key of the random numbers.
    measure : str
        What was measured.
    """

    names: tuple[str, ...]
    values: Floats
    null: Floats
    n: int
    key: int
    measure: str

    _kept = _KEPT

    @property
    def rounds(self) -> int:
        """R."""
        return int(self.null.shape[1])

    def test(self, method: str = "empirical", adjust: str = "bh") -> TestResult:
        """Test that a feature is more important than permuted labels make it. The statistics are the values.

        Parameters
        ----------
        method : {"empirical", "normal", "lognormal", "gamma"}
            "empirical": (1 + how many rounds reach the value) / (R + 1), exact under the null that the labels are
            exchangeable, and never below 1/(R + 1). The others take the feature's R null values for draws from a
            distribution, as in the paper, and say how likely one more draw reaches the value: they can be small after
            few rounds, and are as good as the distribution fits (see `goodness_of_fit`). That the distribution is known
            from R rounds only is counted; the paper's tail of a fitted distribution rejects 8 to 11% of true nulls
            after 19 rounds. "lognormal" and "gamma" are for positive importances.
        adjust : {"bh", "holm", "none"}
            "bh" controls the false discovery rate.
        """
        inference.check_known(method, METHODS, "method")
        if method == "empirical":
            # A tie must not be lost to rounding.
            slack = 1e-12 * np.max(np.abs(self.null), axis=1, initial=0.0)
            p = (1.0 + np.sum(self.null >= (self.values - slack)[:, None], axis=1)) / (self.rounds + 1.0)
        else:
            self._tails(method)  # what has no such distribution is an error
            p = _one_more(self.values, self.null, _NORMAL[method])
        p[~self._known()] = np.nan  # nothing reaches what is not a number
        return TestResult(self.names, self.values, p, inference.adjust(p, adjust), method, "greater", adjust)

    def goodness_of_fit(self, method: str) -> Floats:
        """p-values (p,) of Kolmogorov and Smirnov's test of a fitted null distribution, as the paper uses it to choose.

        The parameters were fitted to the same values, so the p-values are too large: a small one rejects the fit, a
        large one proves little.
        """
        if not isinstance(method, str) or method not in FITS:
            raise ValueError(f"method={shown(method)} is fitted to nothing: use one of {', '.join(map(repr, FITS))}")
        from scipy import stats  # slow to import, and rarely wanted

        pairs = zip(self.null, self._tails(method), strict=True)
        return np.asarray(
            [np.nan if tail is _unknown else stats.kstest(tail(row), "uniform").pvalue for row, tail in pairs]
        )

    def _tails(self, method: str) -> list[Tail]:
        if method != "normal" and (self.null <= 0.0).any():
            bad = [name for name, row in zip(self.names, self.null, strict=True) if (row <= 0.0).any()]
            raise ValueError(
                f"method={shown(method)} is for positive importances, and the null of {export.listed(bad)} has others: "
                "use method='normal' or 'empirical'"
            )
        if self.rounds < 2:
            raise ValueError(f"method={shown(method)} fits a distribution to {self.rounds} round: run at least 2")
        return [_FITTERS[method](row) if np.isfinite(row).all() else _unknown for row in self.null]

    def _known(self) -> NDArray[np.bool_]:
        """The features that have a value, and one in every round."""
        return ~(np.isnan(self.values) | np.isnan(self.null).any(axis=1))

    # -----------------------------------------------------------------------------------------------------------------
    # Tables

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, one row per feature: value, the null's mean and 95% point, p and its BH-adjusted form."""
        test = self.test()
        columns = {"value": self.values, "null_mean": self.null.mean(axis=1), "null_95": self._high()}
        columns |= {"p": test.p_value, "p_bh": test.p_adjusted}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "range", ax: Axes | None = None, **options: object) -> Axes:
        """Draw the values as points over their null distributions, with matplotlib, and return the Axes.

        Parameters
        ----------
        kind : {"range", "box", "violin"}
            The null as its middle 90%, or all its rounds. All take ``most=`` features.
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.NULLS, kind, self, ax, options)

    def _high(self) -> Floats:
        return np.asarray(np.quantile(self.null, 0.95, axis=1))

    def _table(self) -> export.Table:
        title = f"null_importance: {export.short(self.measure)}, n = {self.n}, {self.rounds} rounds of permuted labels"
        test = self.test()
        columns = {"value": self.values, "null mean": self.null.mean(axis=1), "null 95%": self._high()}
        columns |= {"p": test.p_value, "p (BH)": test.p_adjusted}
        return export.by_feature(title, self.names, columns, self.values, forms=("#.4g", "#.4g", "#.4g", ".2g", ".2g"))


# ---------------------------------------------------------------------------------------------------------------------
# Maximum likelihood. Each gives the upper tail P(S >= v), not one minus a distribution function: small p-values matter.

Tail: TypeAlias = Callable[[Floats], Floats]


def _unknown(v: Floats) -> Floats:
    """Of a null that is not known in every round."""
    return np.full_like(v, np.nan, dtype=np.float64)


def _step(at: float) -> Tail:
    """Of a null of one value only."""
    return lambda v: np.asarray(v <= at, dtype=np.float64)


def _normal(x: Floats) -> Tail:
    mean, spread = float(np.mean(x)), float(np.std(x))
    if spread <= 1e-14 * abs(mean):
        return _step(mean)
    return lambda v: np.asarray(special.ndtr((mean - v) / spread))


def _lognormal(x: Floats) -> Tail:
    if np.all(x == x[0]):
        return _step(float(x[0]))
    of_logarithm = _normal(np.log(x))

    def tail(v: Floats) -> Floats:
        positive = v > 0.0
        return np.where(positive, of_logarithm(np.log(np.where(positive, v, 1.0))), 1.0)

    return tail


def _gamma(x: Floats) -> Tail:
    """Shape k solves log k - digamma(k) = log(mean) - mean(log), which has one solution; the scale is mean / k."""
    mean = float(np.mean(x))
    gap = float(np.log(mean) - np.mean(np.log(x)))
    if gap <= 1e-14:
        return _step(mean)
    from scipy import optimize

    # 1/(2k) < log k - digamma(k) < 1/k encloses the shape.
    shape = optimize.brentq(lambda k: np.log(k) - special.digamma(k) - gap, 0.49 / gap, 1.01 / gap)
    return lambda v: np.asarray(special.gammaincc(shape, np.maximum(v, 0.0) * shape / mean))


# ---------------------------------------------------------------------------------------------------------------------
# One more draw from the same distribution, which is known from R of them

# What makes its numbers normal: exactly, or nearly (Wilson and Hilferty 1931).
_NORMAL: dict[str, Callable[[Floats], Floats]] = {"normal": np.asarray, "lognormal": np.log, "gamma": np.cbrt}


def _one_more(values: Floats, null: Floats, normal: Callable[[Floats], Floats]) -> Floats:
    """P(S >= v) (p,): (S - mean) / (s sqrt(1 + 1/R)) has a t distribution with R - 1 degrees of freedom."""
    rounds = null.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        x, v = normal(null), normal(np.maximum(values, 0.0) if normal is not np.asarray else values)
        mean, spread = np.mean(x, axis=1), np.std(x, axis=1, ddof=1)
        p = special.stdtr(rounds - 1, (mean - v) / (spread * np.sqrt(1.0 + 1.0 / rounds)))
    one_value = (spread <= 1e-14 * np.abs(mean)) | np.all(null == null[:, :1], axis=1)
    return np.where(one_value, (values <= null[:, 0]).astype(np.float64), p)


_FITTERS: dict[str, Callable[[Floats], Tail]] = {"normal": _normal, "lognormal": _lognormal, "gamma": _gamma}
