"""What model class reliance returns: ranges, the models at their ends, tables and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from reliance import inference, plots
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.rashomon.model_classes import Members
from reliance.rashomon.protocol import Range
from reliance.results import export, files
from reliance.results.base import Result
from reliance.results.records import plain
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
# Which end decides, on which side it has to lie, and what is claimed.
_CLAIMS = {
    "every": (0, "greater", "every good model relies on it"),
    "some": (1, "greater", "some good model relies on it"),
    "none": (1, "less", "no good model relies on it"),
}
_BY_FEATURE = ("lower", "upper", "achieved_lower", "achieved_upper", "lower_risks", "upper_risks")
_KEPT = {
    "names": files.names("p"),
    **{name: files.floats("p") for name in _BY_FEATURE},
    **{name: files.Kept("objects", ("p",)) for name in ("lower_models", "upper_models")},
    "reference_risk": files.Kept("number"),
    "bound": files.Kept("number"),
    "compare": files.text("difference", "ratio"),
    "loss": files.text(),
    "n": files.Kept("count"),
    "conditional": files.Kept("flag"),
    "model_class": files.text(),
    "spread": files.floats("p", "2", optional=True),
    "confidence": files.Kept("number", optional=True),
    "outer": files.floats("p", "2", optional=True),
    "members": files.record("Members", optional=True),
    "end_errors": files.floats("p", "2", optional=True),
    "reference_reliance": files.floats("p", optional=True),
}


@dataclass(frozen=True, eq=False, repr=False)
class ClassReliance(Result):
    """How little and how much the good models of a class rely on each of p features.

    Attributes
    ----------
    names : tuple of str
        The features.
    lower, upper : arrays (p,)
        Certified: no model of the class within the bound relies less, or more. nan where nothing is certified.
    achieved_lower, achieved_upper : arrays (p,)
        The reliance of the two models that were found.
    lower_models, upper_models : tuples of callables
        These models, on batches of the kind of X. A file holds no models: empty in a result that was read from one.
    lower_risks, upper_risks : arrays (p,)
        Their mean losses.
    reference_risk, bound : float
        The risk of the reference, and the most that a good model may have.
    compare, loss : str
    n : int
        Rows.
    conditional : bool
        Whether only what the other columns cannot predict of a feature was exchanged.
    model_class : str
    spread : array (p, 2) or None
        How much the achieved ends differed between the starts of a search.
    confidence, outer : float, array (p, 2), or None
        Bounds for new rows from the same source, at that level.
    members : Members or None
        Of a finite class: every model's risk and reliance.
    reference_reliance : array (p,) or None
        How much the reference itself relies on the features, where that costs no evaluation: models of a list, and
        linear models under squared error.
    end_errors : array (p, 2) or None
        Standard errors of the two ends, for `interval`; with ``uncertainty=`` or ``FiniteClass(bootstrap=...)``.
    """

    names: tuple[str, ...]
    lower: Floats
    upper: Floats
    achieved_lower: Floats
    achieved_upper: Floats
    lower_models: tuple[Callable[[Array], Array], ...]
    upper_models: tuple[Callable[[Array], Array], ...]
    lower_risks: Floats
    upper_risks: Floats
    reference_risk: float
    bound: float
    compare: str
    loss: str
    n: int
    conditional: bool
    model_class: str
    spread: Floats | None = None
    confidence: float | None = None
    outer: Floats | None = None
    members: Members | None = None
    reference_reliance: Floats | None = None
    end_errors: Floats | None = None

    _kept = _KEPT
    _order = "achieved_upper"
    _not_plain = ("lower_models", "upper_models", "members")

    @property
    def gap(self) -> Floats:
        """(p, 2): how far what is certified lies beyond what was achieved, at both ends; nan where nothing is."""
        with np.errstate(invalid="ignore"):  # both ends may be infinite
            return np.stack([self.achieved_lower - self.lower, self.upper - self.achieved_upper], axis=1)

    def interval(self, level: float = 0.95) -> Floats:
        """Confidence intervals (p, 2, 2) of the lower and of the upper end, for new rows from the same source.

        Each end by itself: the achieved end plus and minus its standard error times a t quantile. A lower end that is
        not above "no reliance" (1 for ratios, 0 for differences) says that some good model needs the feature not at
        all; then the interval reaches to there at least, because the end itself is too low by chance.

        Parameters
        ----------
        level : float
            Of each interval.

        Examples
        --------
        >>> import numpy as np, reliance as rl
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> result = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=True)
        >>> result.interval().round(1)[0].tolist()  # of the least and of the most that good models rely on x0
        [[2.3, 3.5], [3.1, 4.5]]
        """
        inference.check_level(level)
        ends = np.stack([self.achieved_lower, self.achieved_upper], axis=1)
        away = stats.t.ppf(0.5 + level / 2.0, self.n - 1) * self._known_errors()
        low, high = ends - away, ends + away
        null = inference.null_value(self.compare)
        high[:, 0] = np.where(ends[:, 0] <= null, np.maximum(high[:, 0], null), high[:, 0])
        return np.stack([low, high], axis=2)

    def test(self, claim: str = "every", margin: float = 0.0, adjust: str = "holm") -> TestResult:
        """Test what the good models of the class have in common, for new rows from the same source.

        A small p-value is evidence for the claim. Each is a t test of one end of the range with its standard error, for
        ratios on the logarithmic scale.

        Parameters
        ----------
        claim : {"every", "some", "none"}
            "every": each good model relies on the feature, so the lower end is above "no reliance" (1 for ratios, 0 for
            differences). "some": a good model relies on it, so the upper end is; what is rejected is that no good model
            does. "none": no good model relies on it by as much as the margin, so the upper end is below that.
        margin : float
            How much reliance counts, beyond none. "none" needs one above 0: some good model relies on every feature a
            little, unless the models are listed.
        adjust : {"holm", "bh", "none"}
            For testing several features at once.

        Examples
        --------
        >>> import numpy as np, reliance as rl
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> result = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, uncertainty=True)
        >>> (result.test("every").p_adjusted < 0.05).tolist(), (result.test("none", margin=0.5).p_value < 0.05).tolist()
        ([True, False], [False, True])
        """
        inference.check_known(claim, tuple(_CLAIMS), "claim")
        if isinstance(margin, bool) or not isinstance(margin, int | float | np.number) or not 0.0 <= margin < np.inf:
            raise ValueError(f"margin={shown(margin)}: pass a number of at least 0, how much reliance counts")
        end, alternative, words = _CLAIMS[claim]
        if claim == "none" and margin == 0.0:
            raise ValueError(
                "claim='none' with margin=0 cannot be shown: the upper end is not below no reliance; pass how much "
                "reliance would count, such as margin=0.1"
            )
        value, error = (self.achieved_lower, self.achieved_upper)[end], self._known_errors()[:, end]
        ratio = self.compare == "ratio"
        value, error = (value / (1.0 + margin), error / (1.0 + margin)) if ratio else (value - margin, error)
        statistic, p = inference.t_test(value, error, self.n - 1, alternative, ratio)
        return TestResult(self.names, statistic, p, inference.adjust(p, adjust), "t", words, adjust)

    def _known_errors(self) -> Floats:
        if self.end_errors is None:
            raise ValueError(
                "the uncertainty of the ends was not measured: pass uncertainty=True, or how many bootstrap samples, "
                "to model_class_reliance; for a list of models FiniteClass(models, bootstrap=200)"
            )
        return self.end_errors

    def to_dict(self) -> dict[str, object]:
        """All fields but the models, and the gap, as strict JSON: plain numbers, strings and lists, None for NaN."""
        return {**super().to_dict(), "gap": plain(self.gap)}

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame, one row per feature."""
        columns: dict[str, HostArray] = {name: getattr(self, name) for name in _BY_FEATURE}
        columns |= {"lower_gap": self.gap[:, 0], "upper_gap": self.gap[:, 1]}
        if self.outer is not None:
            columns |= {"outer_lower": self.outer[:, 0], "outer_upper": self.outer[:, 1]}
        return export.frame(self.names, columns)

    def plot(self, kind: str = "range", ax: Axes | None = None, **options: object) -> Axes:
        """Draw with matplotlib and return the Axes.

        Parameters
        ----------
        kind : {"range", "cloud", "risk"}
            Dumbbells between what good models achieve, the largest lower end on top. Whiskers reach to what is
            certified; an arrow at the edge says that it is infinite. Intervals of the ends are drawn below, if they
            were measured (``level=``). ``most=`` features at most; ``reference=`` draws a model's reliance as a dot: an
            `Importance`, or values in the order of the features. Of listed models: ``"cloud"`` is reliance on one
            feature against another (``x=``, ``y=``), ``"risk"`` reliance on a ``feature=`` against the risk.
        ax : matplotlib Axes, optional
            Where; a new figure if not given.
        """
        axes: Axes = plots.draw(plots.RANGES, kind, self, ax, options)
        return axes

    @property
    def _method(self) -> str:
        return "conditional_model_class_reliance" if self.conditional else "model_class_reliance"

    def _table(self) -> export.Table:
        title = (
            f"{self._method}: {self.compare} of {export.short(self.loss)} over {export.short(self.model_class)}, "
            f"n = {self.n}, "
            f"risk at most {self.bound:.4g} (reference {self.reference_risk:.4g})"
        )
        if self.members is not None:
            title += f", {int(self.members.inside.sum())} of {len(self.members.names)} models"
        columns = {"lower": self.lower, "upper": self.upper}
        columns |= {"achieved lower": self.achieved_lower, "achieved upper": self.achieved_upper}
        if self.outer is not None:
            columns |= {f"outer {self.confidence:.0%}": self.outer[:, 0], "": self.outer[:, 1]}
        return export.by_feature(title, self.names, columns, self.achieved_upper)


class Described(TypedDict):
    """The fields of a `ClassReliance` that are not of single features, apart from the spread."""

    reference_risk: float
    bound: float
    compare: str
    loss: str
    n: int
    conditional: bool
    model_class: str
    confidence: float | None
    outer: Floats | None
    members: Members | None
    reference_reliance: Floats | None
    end_errors: Floats | None


def from_ranges(names: Sequence[str], ranges: Sequence[Range], **fields: Unpack[Described]) -> ClassReliance:
    """The result of p features."""
    searched = any(one.spread is not None for one in ranges)
    spread = np.asarray([one.spread or (0.0, 0.0) for one in ranges]) if searched else None
    return ClassReliance(
        names=tuple(names),
        lower=np.asarray([one.lower for one in ranges]),
        upper=np.asarray([one.upper for one in ranges]),
        achieved_lower=np.asarray([one.achieved_lower for one in ranges]),
        achieved_upper=np.asarray([one.achieved_upper for one in ranges]),
        lower_models=tuple(one.least.model for one in ranges),
        upper_models=tuple(one.most.model for one in ranges),
        lower_risks=np.asarray([one.least.risk for one in ranges]),
        upper_risks=np.asarray([one.most.risk for one in ranges]),
        spread=spread,
        **fields,
    )
