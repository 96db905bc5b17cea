"""Results of several imputations of missing values, as one: Rubin's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.checks import warn
from reliance._core.public import public
from reliance._core.words import listed, shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.importance import Importance
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
# Fewer imputations than these leave the spread between them, and so the interval, to chance.
_FEW = 5


@dataclass(frozen=True, eq=False, repr=False)
class Pooled(Result):
    """Importances of p features over m imputations of missing values.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        Means over the imputations.
    compare : {"difference", "ratio"}
    within, between : arrays (p,)
        The mean variance of an estimate for given values, and the variance of the estimates between imputations.
    std_error : array (p,)
        The root of within + (1 + 1/m) between.
    degrees_of_freedom : array (p,)
        Of Barnard and Rubin, never more than the results themselves have.
    missing : array (p,)
        The share of the variance that is due to the missing values.
    base_risk : float
        Mean over the imputations.
    n, imputations : int
        Rows, and m.
    method, loss : str
        How each was measured.
    """

    names: tuple[str, ...]
    values: Floats
    compare: str
    within: Floats
    between: Floats
    std_error: Floats
    degrees_of_freedom: Floats
    missing: Floats
    base_risk: float
    n: int
    imputations: int
    method: str
    loss: str

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        "compare": files.text("difference", "ratio"),
        **{
            name: files.floats("p")
            for name in ("values", "within", "between", "std_error", "degrees_of_freedom", "missing")
        },
        "base_risk": files.Kept("number"),
        "n": files.Kept("count"),
        "imputations": files.Kept("count"),
        "method": files.text(),
        "loss": files.text(),
    }

    def interval(self, level: float = 0.95) -> Floats:
        """Population intervals ``(p, 2)``, t on the logarithmic scale for ratios."""
        none, ratio = np.zeros(len(self.names)), self.compare == "ratio"
        return inference.interval(self.values, self.std_error, self.degrees_of_freedom, level, gamma=none, ratio=ratio)

    def test(self, alternative: str = "greater", adjust: str = "holm") -> TestResult:
        """The t tests of no importance."""
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        ratio = self.compare == "ratio"
        statistic, p = inference.t_test(self.values, self.std_error, self.degrees_of_freedom, alternative, ratio)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw "bar", the values with intervals (``level=``, ``most=``), with matplotlib; returns the Axes."""
        return plots.draw(plots.POOLED, kind, self, ax, options)

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per feature; ``p`` is Holm-adjusted."""
        low, high = inference.known_interval(self, level).T
        columns = {"value": self.values, "lower": low, "upper": high, "std_error": self.std_error}
        return export.frame(self.names, {**columns, "p": self.test().p_adjusted, "missing": self.missing})

    def _table(self) -> export.Table:
        what = f"{self.method}: {self.compare} of {export.short(self.loss)}"
        title = f"{what}, n = {self.n}, {self.imputations} imputations, base risk {self.base_risk:.4g}"
        low, high = inference.known_interval(self, 0.95).T
        columns = {"value": self.values, "lower 95%": low, "upper 95%": high, "p (Holm)": self.test().p_adjusted}
        columns["due to missing"] = self.missing
        forms = ("#.4g", "#.4g", "#.4g", ".2g", ".2f")
        return export.by_feature(title, self.names, columns, self.values, forms=forms)


@public
def pool(results: Sequence[Importance]) -> Pooled:
    """Importances over several imputations of missing values as one result, by Rubin's rules.

    Fill the missing values of X several times, each time drawn anew (multiple imputation), measure each table with the
    same call, and pool the results. The interval then counts what the missing values leave open. A single imputation,
    or means in the place of missing values, would count them as known.

    Parameters
    ----------
    results : sequence of Importance
        One for each imputation, five or more, of the same features, loss and rows.

    Returns
    -------
    Pooled

    References
    ----------
    Rubin, D. B. (1987). Multiple imputation for nonresponse in surveys. Wiley.
    Barnard, J., Rubin, D. B. (1999). Small-sample degrees of freedom with multiple imputation. Biometrika 86, 948-955.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y, gone = X.sum(axis=1) + rng.normal(size=200), rng.random(200) < 0.2
    >>> results = []
    >>> for imputation in range(5):
    ...     filled = np.where(gone[:, None] & [True, False], rng.normal(size=(200, 2)), X)
    ...     results.append(rl.permutation_importance(lambda X: X.sum(axis=1), filled, y, rng=0))
    >>> pooled = rl.pool(results)
    >>> bool(pooled.std_error[0] > results[0].std_error[0])
    True
    """
    results = _checked(results)
    first, m = results[0], len(results)
    estimates = np.stack([one.values for one in results])
    within = np.mean([one.std_error**2 for one in results], axis=0)
    between = np.var(estimates, axis=0, ddof=1)
    total = within + (1.0 + 1.0 / m) * between
    share = np.divide((1.0 + 1.0 / m) * between, total, out=np.zeros_like(total), where=total > 0.0)
    known = np.min([one.degrees_of_freedom for one in results], axis=0)
    return Pooled(
        names=first.names,
        values=estimates.mean(axis=0),
        compare=first.compare,
        within=within,
        between=between,
        std_error=np.sqrt(total),
        degrees_of_freedom=_freedom(m, share, known),
        missing=share,
        base_risk=float(np.mean([one.base_risk for one in results])),
        n=first.n,
        imputations=m,
        method=first.method,
        loss=first.loss,
    )


def _freedom(m: int, share: Floats, known: Floats) -> Floats:
    """Of Barnard and Rubin: 1 / (1/old + 1/observed), with old = (m - 1) / share^2."""
    old = np.divide(m - 1.0, share**2, out=np.full_like(share, np.inf), where=share > 0.0)
    observed = (known + 1.0) / (known + 3.0) * known * (1.0 - share)
    return np.where(share > 0.0, 1.0 / (1.0 / old + 1.0 / np.maximum(observed, 1e-9)), known)


def _checked(results: object) -> list[Importance]:
    if isinstance(results, Importance) or not isinstance(results, Sequence) or len(results) < 2:
        raise TypeError(f"results={shown(results)}: pass a list of two or more results, one for each imputation")
    found = list(results)
    for one in found:
        if not isinstance(one, Importance):
            raise TypeError(f"results holds a {type(one).__name__}: pass what permutation_importance and others return")
    first = found[0]
    for one in found[1:]:
        if one.names != first.names:
            differ = sorted(set(one.names) ^ set(first.names)) or list(one.names)
            raise ValueError(f"results are of different features: {listed(differ, 3)}. Measure the same in each")
        for field in ("compare", "loss", "method", "n", "units"):
            own, other = getattr(first, field), getattr(one, field)
            if own != other:
                raise ValueError(
                    f"results differ in {field}: {shown(own)} and {shown(other)}. Measure each imputation with one call"
                )
    if first.compare == "share":
        raise ValueError("results are shares of the variance: pool importances, which are differences or ratios")
    if all(np.array_equal(one.values, first.values) for one in found[1:]):
        warn("results are all the same: pass one result for each imputation of the missing values")
    elif len(found) < _FEW:
        warn(f"results: {len(found)} imputations say little about the spread between them. Take 5 or more")
    return found
