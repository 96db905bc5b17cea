"""Results for several sets of variables, and the paired differences between them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.words import shown
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.importance import Importance
from reliance.results.mapping import Results
from reliance.results.records import Record
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Record):
    """How rows move the p estimates of a set: measured rows (p, n), those of the sampler's fit (p, m), groups (p, J).

    What the estimates of two sets have in common cancels in the difference of their influences. ``replicates`` are the
    estimates without each group of rows, where only refitting knows, and then the first two are None;
    ``training_replicates`` those without each group of the rows of the fit, if they are others. ``training_freedom``
    (p,) is how many rows a fit leaves of these.
    """

    rows: Floats | None
    training: Floats | None
    replicates: Floats | None
    training_replicates: Floats | None = None
    training_freedom: Floats | None = None

    _kept: ClassVar[files.Fields] = {
        "rows": files.floats("p", "n", optional=True),
        "training": files.floats("p", "m", optional=True),
        "replicates": files.floats("p", "J", optional=True),
        "training_replicates": files.floats("p", "T", optional=True),
        "training_freedom": files.floats("p", optional=True),
    }


@dataclass(frozen=True, eq=False, repr=False)
class Delta(Result):
    """The difference of two importances, measured on the same rows with the same random numbers.

    Of two models, or of relative importances given two sets of variables. There, a non-zero difference between the set
    G and the larger set G with N says that the feature depends on N given G (Theorem 2 of König et al.).

    Attributes
    ----------
    names : tuple of str
        The features.
    values, std_error : arrays (p,)
    degrees_of_freedom : array (p,)
        If samplers were fitted on other rows, their number counts, too.
    skewness : array (p,) or None
        Of the estimate, where the interval takes it into account.
    """

    names: tuple[str, ...]
    values: Floats
    std_error: Floats
    degrees_of_freedom: Floats
    skewness: Floats | None = None

    _kept: ClassVar[files.Fields] = {
        "names": files.names("p"),
        **{name: files.floats("p") for name in ("values", "std_error", "degrees_of_freedom")},
        "skewness": files.floats("p", optional=True),
    }

    def _sizes(self) -> Floats:
        return np.abs(self.values)

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals ``(p, 2)``."""
        return inference.interval(self.values, self.std_error, self.degrees_of_freedom, level, gamma=self.skewness)

    def test(self, alternative: str = "two-sided", adjust: str = "holm") -> TestResult:
        """The t tests of no difference."""
        inference.check_known(alternative, inference.ALTERNATIVES, "alternative")
        statistic, p = inference.t_test(self.values, self.std_error, self.degrees_of_freedom, alternative, False)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", alternative, adjust)

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: Any) -> Axes:
        """Draw "bar", the differences with intervals (``level=``, ``most=``), with matplotlib; returns the Axes."""
        return plots.draw(plots.DELTA, kind, self, ax, options)

    def to_frame(self, level: float = 0.95) -> Any:
        """A pandas DataFrame, one row per feature; ``p`` is Holm-adjusted."""
        low, high = inference.known_interval(self, level).T
        columns = {"value": self.values, "lower": low, "upper": high, "std_error": self.std_error}
        return export.frame(self.names, {**columns, "p": self.test().p_adjusted})

    def _table(self) -> export.Table:
        low, high = inference.known_interval(self, 0.95).T
        columns = {"difference": self.values, "lower 95%": low, "upper 95%": high}
        return export.by_feature(f"Delta of {len(self.names)} features", self.names, columns, np.abs(self.values))


@dataclass(frozen=True, eq=False, repr=False)
class RelativeImportance(Results[Importance]):
    """Relative importances given several sets of variables: ``result["X2"]`` is an `Importance`.

    Attributes
    ----------
    entries : dict from names of sets to Importance
    by : "given"
    influences : dict from names of sets to Influence
        How rows move the estimates, for `delta`.
    """

    by: str = "given"
    influences: dict[str, Influence] = dataclasses.field(default_factory=dict)

    _kept: ClassVar[files.Fields] = {**Results._kept, "influences": files.records("Influence")}
    _not_plain = ("influences",)

    def _fault(self) -> str:
        whole = not super()._fault() and all(isinstance(one, Importance) for one in self.entries.values())
        whole = whole and len({one.names for one in self.entries.values()}) == 1
        sizes = [len(part) for one in self.influences.values() for part in one._fields().values() if part is not None]
        whole = whole and set(self.influences) <= set(self.entries)
        return "" if whole and set(sizes) <= {len(next(iter(self.entries.values())).names)} else "its sets do not fit"

    def ranked(self) -> Self:
        """The features in the order of their largest value in any set, the same in all of them."""
        return self._taken(np.argsort(-self._sizes(), kind="stable"))

    def delta(self, first: str, second: str) -> Delta:
        """The importance given the first set minus that given the second, paired row by row.

        Parameters
        ----------
        first, second : str
            Names of two sets, usually a smaller and a larger one.
        """
        a, b = self[first], self[second]
        one, other = self.influences[first], self.influences[second]
        difference = a.values - b.values
        df: float | Floats
        if one.replicates is not None and other.replicates is not None:
            variance = jackknife_spread(one.replicates - other.replicates) ** 2
            df = one.replicates.shape[1] - 1
            trained = [part.training_replicates for part in (one, other) if part.training_replicates is not None]
            if trained:  # where nothing was given, nothing was fitted
                more = jackknife_spread(trained[0] if len(trained) == 1 else trained[0] - trained[1]) ** 2
                df, variance = inference.satterthwaite([variance, more], [df, trained[0].shape[1] - 1]), variance + more
        elif one.rows is not None and other.rows is not None:
            psi = one.rows - other.rows
            variance, df = np.var(psi, axis=1, ddof=1) / psi.shape[1], a.n - 1
            fits = [part for part in (one, other) if part.training is not None]
            if fits:
                more, left = _training_variance(fits)
                df, variance = inference.satterthwaite([variance, more], [df, left]), variance + more
            else:  # perhaps fewer than the rows: heavy weights, or a rare class
                df = float(min(a.degrees_of_freedom.min(), b.degrees_of_freedom.min()))
        else:
            raise ValueError(
                f"the errors of {shown(first)} and {shown(second)} are of different kinds and cannot be paired"
            )
        return Delta(a.names, difference, np.sqrt(variance), np.broadcast_to(df, difference.shape))

    def plot(self, kind: str | None = "bar", ax: Axes | None = None, **options: Any) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar"}
            A bar for each feature and set, with intervals (``level=``, ``most=``): grouped ``by="feature"`` or
            ``by="set"``, with other values of the same as diamonds (``marks={"analytic": array (sets, features)}``).
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.SETS, kind, self, ax, options)


def _training_variance(fits: list[Influence]) -> tuple[Floats, Floats]:
    """What the rows of the fit add to the variance of one estimate or of a difference, and its degrees of freedom."""
    parts = [np.asarray(part.training) for part in fits]
    psi = parts[0] if len(parts) == 1 else parts[0] - parts[1]
    freedoms = [np.full(len(psi), np.nan) if part.training_freedom is None else part.training_freedom for part in fits]
    left = np.fmin.reduce([*freedoms, np.full(len(psi), psi.shape[1] - 1.0)])
    return np.asarray(np.var(psi, axis=1, ddof=1) / psi.shape[1]), np.asarray(left)


def jackknife_spread(replicates: Floats) -> Floats:
    """The standard errors (p,) of estimates without each of J groups, (p, J): sqrt((J - 1) / J sum of squares)."""
    groups = replicates.shape[1]
    centred = replicates - replicates.mean(axis=1, keepdims=True)
    return np.asarray(np.sqrt((groups - 1) / groups * np.sum(centred**2, axis=1)))
