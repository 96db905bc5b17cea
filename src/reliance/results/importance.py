"""Frozen results: values with their uncertainty, tables, export."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance import inference, plots
from reliance._core.checks import warn
from reliance._core.words import closest, shown
from reliance.results import export, files, jointly, judging
from reliance.results.base import Result
from reliance.results.curves import Curve
from reliance.results.delta import Delta
from reliance.results.influence import Influence
from reliance.results.ranks import Ranks
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Floats = NDArray[np.float64]
FORMULATIONS = ("population", "fixed-data", "random-variable")
_OTHER_ERRORS = ("monte_carlo_share", "fixed_data_error", "random_variable_error", "row_error")
ERRORS = ("std_error", "skewness", "degrees_of_freedom", *_OTHER_ERRORS)
_KEPT = {
    "names": files.names("p"),
    "values": files.floats("p"),
    "compare": files.text("difference", "ratio", "share"),
    "base_risk": files.Kept("number"),
    "replaced_risk": files.floats("p"),
    "draws": files.floats("p", "K", optional=True),
    "row_values": files.floats("p", "n", optional=True),
    "n": files.Kept("count"),
    "units": files.Kept("count"),
    "evaluations": files.counts("p"),
    "routes": files.names("p"),
    "why_routes": files.names("p"),
    "block": files.Kept("sizes", optional=True),
    "key": files.Kept("key"),
    **{name: files.text() for name in ("method", "loss", "plan", "replaced_by", "stopped", "why_loss")},
    "draws_per_row": files.Kept("count"),
    "exchangeable": files.Kept("flag"),
    **{name: files.floats("p") for name in ERRORS},
    "curves": files.records("Curve", optional=True),
    "unit_values": files.floats("p", "m", optional=True),
    "tree_values": files.floats("p", "B", optional=True),
    "influence": files.record("Influence", optional=True),
}
# Simulated at n = 200, squared error, 95%: lognormal(0.5), (0.75) and (1) features have a gamma of 0.3, 0.5 and 0.6 and
# all pairs covered 0.94, 0.93 and 0.90. A limit on gamma, not on the skewness: it is gamma that shrinks with the rows.
_SKEWED = 0.3


@dataclass(frozen=True, eq=False, repr=False)
class Importance(Result):
    """How much a model relies on each of p features, measured on n rows with K draws per row.

    Attributes
    ----------
    names : tuple of str
        The features.
    values : array (p,)
        Replaced risk minus base risk, or over it (``compare``).
    compare : {"difference", "ratio"}
        Which of the two.
    base_risk : float
        Mean loss of the model on the data as they are.
    replaced_risk : array (p,)
        Mean loss with the feature replaced.
    draws : array (p, K) or None
        The value of each draw; None for all pairs.
    row_values : array (p, n) or None
        What each row contributes, with ``keep=("rows",)``: their mean is the value. For differences without weights,
        the row's mean change of loss.
    std_error : array (p,)
        Standard error over new data (the population interval's).
    n, units, draws_per_row : int
        Rows measured, independent units among them (clusters, pairs of rows for halves, groups for the jackknife), K.
    evaluations, routes : array (p,), tuple of str
        Model evaluations that each feature took, and the route it was measured by. Not counted: the rows as they are,
        of which up to 64 are predicted twice, to see what another batch does to them.
    why_routes : tuple of str
        Of features for which the model was called for many pairs, the route that is nearly for it and why it does not
        apply: "route='pipeline' does not apply: the pipeline's PCA mixes columns". Otherwise "".
    block, key : tuple of int or None, int
        Shape of a block, and the key of the random numbers.
    method, loss, plan : str
        How it was measured; ``plan`` in words, such as "all pairs" or "shifts, 20 per row".
    replaced_by : str
        What features were replaced by, if not by values of any of the measured rows: "mean", "zero", "noise", values,
        other rows or rows of the same label with a digest of them, or what was given.
    exchangeable : bool
        Whether the draws could change places with the data if a feature did not matter, as the rank test needs; draws
        by ranks are spread too evenly for that, and draws of rows in clusters tear these apart.
    why_loss : str
        Why this loss was taken, if the call named none: "the default for a regressor", for instance.
    skewness : array (p,)
        gamma, the skewness of the estimate: that of the influence values over the square root of their number.
    monte_carlo_share : array (p,)
        The share of the variance that more draws would remove (nan where it is not known).
    fixed_data_error, random_variable_error, row_error : arrays (p,)
        Standard errors of the other two formulations, and of the paired t test on row means.
    curves : dict from names to Curve, or None
        With ``keep="curves"``, the partial dependence of each feature at the values that occur.
    stopped : str
        With ``draws=rl.Until(...)``, why there were no more draws: "precision", "ranking", "rows", "all pairs",
        "budget" or "limit" (100 n independent draws). If a call ended early with ``rl.Run(deadline=...)`` or
        ``on_interrupt="partial"``: "deadline" or "interrupted".
    tree_values : array (p, B) or None
        Of `out_of_bag_importance`: the importance in each tree.
    unit_values : array (p, units) or None
        The means of the rows of each unit, if these are not the rows and ``row_values`` are kept.
    degrees_of_freedom : array (p,)
        Of the population interval's t quantile and of ``test(method="t")``.
    influence : Influence or None
        With ``keep="influence"``, how far each row, or cluster, moves each estimate: ``influence.rows`` (p, units).
    """

    names: tuple[str, ...]
    values: Floats
    compare: str
    base_risk: float
    replaced_risk: Floats
    draws: Floats | None
    row_values: Floats | None
    std_error: Floats
    n: int
    units: int
    evaluations: NDArray[np.int64]
    routes: tuple[str, ...]
    block: tuple[int, ...] | None
    key: int
    method: str
    loss: str
    plan: str
    draws_per_row: int
    skewness: Floats
    monte_carlo_share: Floats
    fixed_data_error: Floats
    random_variable_error: Floats
    row_error: Floats
    curves: dict[str, Curve] | None = None
    stopped: str = ""
    why_loss: str = ""
    why_routes: tuple[str, ...] = ()
    exchangeable: bool = True
    tree_values: Floats | None = None
    unit_values: Floats | None = None
    degrees_of_freedom: Floats = dataclasses.field(default_factory=lambda: np.full(1, math.nan))
    influence: Influence | None = None
    replaced_by: str = ""

    _kept = _KEPT

    def __post_init__(self) -> None:
        known = np.broadcast_to(self.degrees_of_freedom, len(self.names))
        object.__setattr__(self, "degrees_of_freedom", np.where(np.isnan(known), self.units - 1, known))
        object.__setattr__(self, "why_routes", self.why_routes or ("",) * len(self.names))
        super().__post_init__()

    def _fault(self) -> str:
        curves = self.curves or {}
        fits = not curves or set(curves) == set(self.names)
        fits = fits and all(c.ice is None or c.ice.shape == (self.n, *c.mean.shape) for c in curves.values())
        if not fits:
            return "its curves do not fit its features"
        whole = self.influence is None or set(self.influence.sizes()) <= {len(self.names)}
        return "" if whole else "its influences do not fit its features"

    # -----------------------------------------------------------------------------------------------------------------
    # Inference

    def interval(self, level: float = 0.95, formulation: str = "population", *, simultaneous: bool = False) -> Floats:
        """Confidence intervals ``(p, 2)``.

        Parameters
        ----------
        level : float
            Confidence level.
        formulation : {"population", "fixed-data", "random-variable"}
            What is uncertain. "population": the data and the draws; the target is the value on new data of the same
            kind. "fixed-data": the draws alone; the target is the mean of all possible draws on these data.
            "random-variable": Merrick's, which takes all nK changes of loss for independent: too short for K > 1.
        simultaneous : bool
            True: with probability ``level`` all p population intervals hold together, not each by itself. Needs
            ``keep="influence"``. A bootstrap of all estimates (10,000, from the result's key) finds the higher level at
            which each interval is taken: features that move together need less of it than Bonferroni's rule.
        """
        inference.check_known(formulation, FORMULATIONS, "formulation")
        inference.check_level(level)
        if simultaneous:
            if formulation != "population":
                raise ValueError(
                    f"simultaneous=True is for population intervals: leave formulation={shown(formulation)} out"
                )
            level = jointly.single_level(self, level)
        if formulation == "population":
            found = self._interval(level)
            if self._skewed():
                warn(
                    f"the losses of {export.listed(self._skewed())} are very skewed for {self._sample}: the population "
                    f"interval may cover less than its level, and what it misses is mostly {self._missed()}; more rows "
                    "help, or a loss with lighter tails: rl.losses.trimmed(...)"
                )
            return found
        if formulation == "random-variable":
            judging.check_error(self, "the random-variable interval", self.random_variable_error)
            return inference.interval(self.values, self.random_variable_error, self.n * self.draws_per_row - 1, level)
        if np.isnan(self.fixed_data_error).all():
            raise ValueError(
                "formulation='fixed-data' needs the spread over draws, and this result has one draw per row: "
                "measure with draws=2 or more"
            )
        return inference.interval(self.values, self.fixed_data_error, max(self.draws_per_row - 1, 1), level)

    def _interval(self, level: float) -> Floats:
        """The population interval, without a word about what it rests on: tables and figures repeat no warning."""
        judging.check_error(self, "the population interval", self.std_error)
        gamma, ratio, df = self.skewness, self.compare == "ratio", self.degrees_of_freedom
        return inference.interval(self.values, self.std_error, df, level, gamma=gamma, ratio=ratio)

    def test(self, alternative: str = "greater", method: str = "t", adjust: str = "holm") -> TestResult:
        """Test each feature against no importance.

        Parameters
        ----------
        alternative : {"greater", "less", "two-sided"}
            "greater": the model does worse without the feature.
        method : {"t", "paired", "sign-flip", "rank", "wilcoxon", "sign"}
            "t": estimate over population standard error (ratios on the logarithmic scale). "paired": paired t on the
            row means. "sign-flip": needs ``keep=("rows",)``; exact for ``pairs="halves"`` and for new values drawn
            for each row. With one shift or one independent donor per row, rows share donors and it rejects far less
            often than its level (a true null of squared error never in a simulation). "rank": the base risk's rank
            among the draws, whose null is that the feature is independent of everything else. "wilcoxon" and "sign":
            one draw per row only.
        adjust : {"holm", "bh", "none"}
            For testing several features at once.
        """
        return judging.tested(self, alternative, method, adjust)

    def ranks(self, level: float = 0.95) -> Ranks:
        """Which ranks each feature may have, so that all of it is true with a probability: "first or second".

        Two features are told apart if the interval of their difference, taken row by row, does not hold 0, at the level
        at which the intervals of all differences hold together. Needs ``keep="influence"``.

        Parameters
        ----------
        level : float
            Confidence level of all sets together.

        Examples
        --------
        >>> import numpy as np, reliance as rl
        >>> X = np.random.default_rng(0).normal(size=(300, 3))
        >>> model = lambda X: X @ np.asarray([2.0, 1.9, 0.5])
        >>> result = rl.permutation_importance(model, X, model(X), keep="influence", rng=0)
        >>> found = result.ranks()
        >>> found.first.tolist(), found.last.tolist()
        ([1, 1, 3], [2, 2, 3])
        """
        found = jointly.rank_sets(self, level)
        return Ranks(self.names, self.values, found.first, found.last, found.above, level)

    def delta(self, first: str, second: str) -> Delta:
        """The importance of one feature minus that of another, paired row by row. Needs ``keep="influence"``.

        Parameters
        ----------
        first, second : str
            Names of two features.
        """
        for name in (first, second):
            if name not in self.names:
                raise ValueError(f"{shown(name)} is no feature of this result: {closest(str(name), self.names)}")
        one, other = (self._taken(np.asarray([self.names.index(name)])) for name in (first, second))
        called = (f"{export.short(first)} - {export.short(second)}",)
        one, other = (dataclasses.replace(part, names=called) for part in (one, other))
        value, found = jointly.difference(one, other)
        return Delta(
            called, value, found.std_error, found.degrees_of_freedom, found.skewness, f"two features, {self._words}"
        )

    def __sub__(self, other: Importance) -> Delta:
        """The differences of two results of the same rows, with ``keep="influence"`` each: a `Delta`.

        Two models, two losses (as ratios), two given sets: what moves both results cancels row by row.
        """
        if not isinstance(other, Importance):
            return NotImplemented
        value, found = jointly.difference(self, other)
        what = f"{self._words}, less that of the second result"
        return Delta(self.names, value, found.std_error, found.degrees_of_freedom, found.skewness, what)

    @property
    def _words(self) -> str:
        return f"{self.compare} of {export.short(self.loss)}"

    @property
    def _sample(self) -> str:
        return f"{self.n} rows" if self.units == self.n else f"{self.units} independent units of {self.n} rows"

    def _skewed(self) -> list[str]:
        """The features whose population interval may cover less than its level."""
        return [name for name, gamma in zip(self.names, self.skewness, strict=True) if abs(gamma) > _SKEWED]

    def _missed(self) -> str:
        """On which side of a skewed interval the truth is, if not in it: where rows that are rare would move it."""
        signs = {bool(gamma > 0.0) for gamma in self.skewness if abs(gamma) > _SKEWED}
        return "on its longer side" if len(signs) > 1 else "above it" if signs == {True} else "below it"

    def z_scores(self) -> Floats:
        """``(p,)``: the forests' classical scores, the mean over trees over its standard error over trees.

        Not a test: they say how far more trees of the same data would agree, and grow with the root of their number.
        """
        if self.tree_values is None:
            raise ValueError(f"z_scores() are of trees, and {self.method} has none: use out_of_bag_importance")
        warn("z-scores over trees grow with the number of trees and test nothing about the data: use test()")
        error = np.std(self.tree_values, axis=1, ddof=1) / math.sqrt(self.tree_values.shape[1])
        return np.asarray(np.divide(self.values, error, out=np.zeros_like(error), where=error > 0.0))

    # -----------------------------------------------------------------------------------------------------------------
    # scikit-learn's names

    @property
    def importances(self) -> Floats:
        """The draws ``(p, K)``, or ``(p, 1)`` for all pairs."""
        return self.values[:, None] if self.draws is None else self.draws

    @property
    def importances_mean(self) -> Floats:
        return self.values

    @property
    def importances_std(self) -> Floats:
        """Spread over draws (not a standard error: it does not shrink with the draws, nor see the rows)."""
        spread: Floats = np.std(self.importances, axis=1)
        return spread

    # -----------------------------------------------------------------------------------------------------------------
    # Tables

    def to_frame(self, level: float = 0.95) -> DataFrame:
        """A pandas DataFrame, one row per feature; ``p`` is Holm-adjusted."""
        bounds, p = self._uncertainty(level)
        columns: dict[str, object] = {"value": self.values, "lower": bounds[:, 0], "upper": bounds[:, 1]}
        columns |= {"std_error": self.std_error, "p": p}
        columns |= {name: getattr(self, name) for name in ("replaced_risk", "monte_carlo_share", "evaluations")}
        return export.frame(self.names, {**columns, "route": list(self.routes)})

    def plot(self, kind: str = "bar", ax: Axes | None = None, **options: object) -> Axes:
        """Draw the result with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"bar", "box", "violin", "curve", "beeswarm", "image"}
            "bar": values with population intervals (``level=``, ``most=`` features). "box", "violin": the spread over
            draws (``most=``). "curve": the partial dependence of one ``feature=``, if kept (``output=``, ``points=``,
            ``values=``, ``rows=``). "beeswarm": a point for each row, if kept, coloured by the feature's value if
            ``X=``, the rows that were measured, is given (``names=`` of its columns, ``most=``). "image": pixels
            (``shape=(height, width)``, ``names=``) or the groups of a ``mask=`` as a picture.
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        return plots.draw(plots.IMPORTANCE, kind, self, ax, options)

    def _uncertainty(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Interval and adjusted p of the default formulation, nan where they cannot be had; never raises nor warns."""
        bounds = inference.known_interval(self, level)
        try:
            return bounds, self.test().p_adjusted
        except ValueError:
            return bounds, np.full(len(self.names), math.nan)

    def _table(self) -> export.Table:
        why = f" ({self.why_loss})" if self.why_loss else ""
        what = f"{self.method}: {self.compare} of {export.short(self.loss)}{why}"
        title = f"{what}, n = {self.n}, {self.plan}, base risk {self.base_risk:.4g}"
        bounds, p = self._uncertainty()
        columns = {"value": self.values, "lower 95%": bounds[:, 0], "upper 95%": bounds[:, 1], "p (Holm)": p}
        forms = ("#.4g", "#.4g", "#.4g", ".2g")
        table = export.by_feature(title, self.names, columns, self.values, forms=forms)
        notes = [table.closing] if table.closing else []
        if skewed := self._skewed():
            notes.append(f"very skewed, interval and p may disagree: {export.listed(skewed)}")
        if alike := jointly.alike(self):
            notes.append(f"not told apart, all pairs together at 95%: {export.listed(alike)}")
        return table._replace(closing="\n".join(notes))
