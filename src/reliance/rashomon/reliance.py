"""How much any good model relies on a feature: the range of reliance over the Rashomon set of a class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, calls
from reliance._core.checks import check_choice, warn
from reliance._core.progress import Progress, check_progress, reporting
from reliance._core.public import public
from reliance._core.run import Run, resolved
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import shown
from reliance.data.passed import DataLike, FeaturesLike, ModelLike
from reliance.data.rows import Rows, read
from reliance.inference import identified
from reliance.rashomon import reference as own_reliance
from reliance.rashomon import results as class_results
from reliance.rashomon.members import Members
from reliance.rashomon.model_classes import FiniteClass
from reliance.rashomon.protocol import ClassData, ListedClass, Member, ModelClass, Range
from reliance.rashomon.results import ClassReliance

Floats = NDArray[np.float64]
# A model of the class, or its name in a list of models, or a risk.
Reference: TypeAlias = ModelLike | str | float | None
_COMPARE = ("ratio", "difference")


@public
def model_class_reliance(
    model_class: ModelClass,
    X: DataLike,
    y: DataLike,
    *,
    epsilon: float,
    relative: bool = True,
    reference: Reference = None,
    compare: str = "ratio",
    features: FeaturesLike = None,
    names: Sequence[str] | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    confidence: float | None = None,
    loss_bound: float | None = None,
) -> ClassReliance:
    r"""The least and the most that any good model of a class relies on a feature.

    .. math:: \mathcal R = \{f \in \mathcal F : \hat e(f) \le (1 + \epsilon)\, \hat e(f_{ref})\}, \qquad
              [MCR_-, MCR_+] = \Big[\min_{f \in \mathcal R} MR(f), \max_{f \in \mathcal R} MR(f)\Big]

    with MR over all n(n-1) pairs of rows, as in `model_reliance`.

    Parameters
    ----------
    X : array (n, P)
        NumPy, CuPy, JAX or torch; the work happens where it is.
    y : array (n,)
    compare : {"ratio", "difference"}
        Switched risk over, or minus, the risk.
    rng : int, SeedSequence or Generator, optional
        For the starts of searches and for bootstraps.
    run : Run, optional
        ``rl.Run(memory="512MB")`` bounds what may be allocated; the only setting that classes of models use.
    progress : bool or callable
        Show a bar, or call ``progress(done, total)``: features, or the rows that the models of a `FiniteClass` are
        called with.
    confidence : float, optional
        A level such as 0.95, for ``outer``: bounds of the range over the models that are good for *new* rows. Needs
        ``loss_bound`` and a reference that was not chosen on these rows. Usually very wide.
    loss_bound : float, optional
        What the loss of a row cannot exceed, for the reference and all good models, also with features switched.

    Returns
    -------
    ClassReliance

    Notes
    -----
    ``outer`` follows the proof of Theorem 4 of Fisher et al., with the least risk in the class instead of their
    constant b_orig. With probability ``confidence`` = 1 - delta, for each feature by itself, by Hoeffding's inequality
    for six means of losses in [0, B]: the models at the ends for the population are within an enlarged bound on these
    rows, their risks differ from those here by at most q1 = B sqrt(log(6/delta) / 2n), and their switched risks by
    q2 = B sqrt(log(6/delta) / 2[n/2]).

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes, question 5.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> result = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.02)
    >>> bool(1.5 < result.lower[0] < result.upper[0]), bool(result.upper[1] < 1.2)
    (True, True)
    >>> model = result.upper_models[0]  # the good model that relies most on the first feature
    >>> bool(np.isclose(rl.model_reliance(model, X, y).values[0], result.upper[0]))
    True
    """
    _check_confidence(confidence, loss_bound, reference)
    question = _ask(model_class, X, y, epsilon, relative, reference, compare, features, names, rng, run, progress)
    found = question.ranges(question.bound)
    if confidence is None or loss_bound is None:
        return question.result(found)
    return question.result(found, float(confidence), _outer(question, float(confidence), float(loss_bound)))


@public
def conditional_model_class_reliance(
    model_class: ModelClass,
    X: DataLike,
    y: DataLike,
    *,
    epsilon: float,
    relative: bool = True,
    reference: Reference = None,
    compare: str = "ratio",
    features: FeaturesLike = None,
    names: Sequence[str] | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
) -> ClassReliance:
    r"""The least and the most that good models of a class rely on what only a feature says.

    .. math:: [CMCR_-, CMCR_+] = \Big[\min_{f \in \mathcal R} CMR(f), \max_{f \in \mathcal R} CMR(f)\Big]

    with CMR over all pairs of rows as in `conditional_model_reliance`: what the other columns predict of the feature,
    by in-sample least squares with intercept, stays with the row, the rest comes from another.

    Parameters
    ----------
    X : array (n, P)
        NumPy, CuPy, JAX or torch; the work happens where it is.
    y : array (n,)
    compare : {"ratio", "difference"}
        Switched risk over, or minus, the risk.
    rng : int, SeedSequence or Generator, optional
        For the starts of searches and for bootstraps.
    run : Run, optional
        ``rl.Run(memory="512MB")`` bounds what may be allocated; the only setting that classes of models use.
    progress : bool or callable
        Show a bar, or call ``progress(done, total)``: features, or the rows that the models of a `FiniteClass` are
        called with.

    Returns
    -------
    ClassReliance

    Notes
    -----
    For linear models under squared error the change of risk is linear in the feature's coefficients,
    :math:`2 b_J' s_{ry}` with r the residuals of the feature, so both ends are exact.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes, question 6.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> X[:, 1] = X[:, 0] + 0.2 * X[:, 1]
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> plain = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
    >>> unique = rl.conditional_model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
    >>> bool(np.all(unique.upper < plain.upper))
    True
    """
    question = _ask(model_class, X, y, epsilon, relative, reference, compare, features, names, rng, run, progress, True)
    return question.result(question.ranges(question.bound))


@dataclass(frozen=True, eq=False)
class Question:
    """A class, the rows, and what counts as good: checked."""

    model_class: ModelClass
    rows: Rows
    data: ClassData
    progress: Progress
    reference_risk: float
    bound: float
    epsilon: float
    relative: bool
    reference: Reference
    compare: str
    conditional: bool
    anchor: Member | None  # the reference as a model, if it is one

    def ranges(self, bound: float) -> list[Range]:
        features = self.rows.features
        unit = "rows" if isinstance(self.model_class, FiniteClass) else "features"
        with reporting(self.progress, len(features), unit) as advance:
            return self.model_class.ranges(self.data, bound, features, self.compare, self.conditional, advance)

    def result(self, found: list[Range], confidence: float | None = None, outer: Floats | None = None) -> ClassReliance:
        members = None
        if isinstance(self.model_class, ListedClass):
            features = self.rows.features
            every = self.model_class.members(self.data, self.bound, features, self.compare, self.conditional)
            scale, shift = (1.0 + self.epsilon, 0.0) if self.relative else (1.0, self.epsilon)
            place = None if self.reference is None or _is_number(self.reference) else self.reference
            if _is_number(self.reference):
                scale, shift = 0.0, self.bound
            members = every.resampled(None if place is None else self.model_class.position(place), scale, shift)
        return class_results.from_ranges(
            [feature.name for feature in self.rows.features],
            found,
            reference_risk=self.reference_risk,
            bound=self.bound,
            compare=self.compare,
            loss=self.model_class.loss,
            n=self.rows.n,
            conditional=self.conditional,
            model_class=type(self.model_class).__name__,
            confidence=confidence,
            outer=outer,
            members=members,
            reference_reliance=self._reference_reliance(members),
        )

    def _reference_reliance(self, members: Members | None) -> Floats | None:
        """What the reference relies on, where that costs nothing."""
        if members is not None:
            return own_reliance.of_listed(members, self.reference_risk)
        if self.anchor is None or self.conditional or self.model_class.loss != "squared_error":
            return None
        return own_reliance.of_linear(self.anchor, self.data, self.rows.features, self.compare)


def _ask(
    model_class: ModelClass,
    X: object,
    y: object,
    epsilon: float,
    relative: bool,
    reference: Reference,
    compare: str,
    features: FeaturesLike,
    names: Sequence[str] | None,
    rng: RandomState,
    run: Run | None,
    progress: Progress,
    conditional: bool = False,
) -> Question:
    check_choice(compare, _COMPARE, "compare")
    if isinstance(model_class, type) or not all(hasattr(model_class, m) for m in ("best", "contains", "ranges")):
        raise TypeError(
            f"model_class={shown(model_class)} is not a class of models: pass rl.LinearClass(), for instance"
        )
    if not _is_number(epsilon) or not 0.0 <= float(epsilon) < math.inf:
        raise ValueError(f"epsilon={shown(epsilon)}: pass a number of at least 0, how much worse a good model may be")
    if not isinstance(relative, bool | np.bool_):
        raise TypeError(
            f"relative={shown(relative)}: pass True for a share of the reference's risk, False for a risk added"
        )
    if isinstance(run, Run) and run.block is not None:
        raise ValueError(f"run has block={shown(run.block)}: a class of models has no blocks of rows; leave it out")
    if isinstance(run, Run) and run.workers is not None:
        raise ValueError(
            f"run has workers={shown(run.workers)}: the models of a class are searched in one thread; leave workers out"
        )
    settings = resolved(run)
    if settings.checkpoint is not None or settings.ends_early or calls.at_work() is not None:
        raise ValueError(
            "searches in a class of models are not cut into units that could be counted or kept, or that a call could "
            "end with: leave rl.estimate, or checkpoint=, deadline= and on_interrupt= of rl.Run, out"
        )
    check_progress(progress)
    rows = read(X, y, features=features, names=names)
    data = _class_data(rows, model_class, resolve_key(rng), settings.bytes)
    identified.warn(identified.constant_features(rows), rows.features)
    against = _reference(model_class, data, reference)
    anchor, risk = (against, against.risk) if isinstance(against, Member) else (None, against)
    if relative and risk < 0.0:
        raise ValueError(
            f"the reference's risk is {risk:g}: a share of a negative risk is no allowance; pass relative=False"
        )
    if compare == "ratio" and risk < 0.0:
        raise ValueError(
            f"compare='ratio' divides by the risk, and the reference's is {risk:g}: pass compare='difference'"
        )
    bound = (1.0 + float(epsilon)) * risk if relative else risk + float(epsilon)
    return Question(
        model_class,
        rows,
        data,
        progress,
        risk,
        bound,
        float(epsilon),
        relative,
        reference,
        compare,
        conditional,
        anchor,
    )


def _is_number(x: object) -> TypeGuard[float]:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)


def _class_data(rows: Rows, model_class: ModelClass, key: int, memory: int) -> ClassData:
    y = rows.y
    if y is None:
        raise ValueError("y is None: the risk of models needs labels")
    if len(rows.shape) != 1:
        raise ValueError(f"X has rows of shape {rows.shape}: a class of models needs X (n, P)")
    host = arrays.to_host(y)
    if bool(np.all(host == host[:1])):
        raise ValueError("y is constant: there is nothing to predict, and no model relies on anything")
    if isinstance(model_class, ListedClass):  # its models take rows as they are, tables and several inputs, too
        return ClassData(rows.flat, y, key, memory, rows)
    # Coefficients need numbers that can be multiplied with them.
    name = type(model_class).__name__
    numbers = rows.numbers(name)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"y has dtype {host.dtype}, but {name} needs numbers: encode the labels")
    if host.ndim != 1:
        raise ValueError(f"y has shape {host.shape}, but {name} has one output: pass y of shape ({host.shape[0]},)")
    return ClassData(arrays.as_floating(numbers), y, key, memory)


def _reference(model_class: ModelClass, data: ClassData, reference: Reference) -> Member | float:
    """The model that others are compared with; or the risk, checked, where that was given."""
    if reference is None:
        return model_class.best(data)
    if not _is_number(reference):
        return model_class.contains(data, reference)
    if not math.isfinite(reference):
        raise ValueError(
            f"reference={shown(reference)} is no risk: pass a finite number, a model of the class, or None"
        )
    best: Member = model_class.best(data)
    if float(reference) < best.risk:
        raise ValueError(
            f"reference={shown(reference)} is a risk below {best.risk:g}, that of the best model found in the class: "
            "no model is that good, the Rashomon set is empty"
        )
    return float(reference)


# ---------------------------------------------------------------------------------------------------------------------
# Finite samples


def _check_confidence(confidence: float | None, loss_bound: float | None, reference: Reference) -> None:
    if confidence is None:
        if loss_bound is not None:
            raise ValueError(f"loss_bound={shown(loss_bound)} is used with confidence= only: pass both, or neither")
        return
    if not _is_number(confidence) or not 0.0 < float(confidence) < 1.0:
        raise ValueError(f"confidence={shown(confidence)}: pass a level between 0 and 1, such as 0.95, or None")
    if loss_bound is None or not _is_number(loss_bound) or not 0.0 < float(loss_bound) < math.inf:
        raise ValueError(
            f"confidence= rests on Hoeffding's inequality and needs loss_bound=, what the loss of a row cannot exceed; "
            f"it is {shown(loss_bound)}"
        )
    if reference is None or _is_number(reference):
        raise ValueError(
            "confidence= needs reference=, a model that was not chosen on these rows: the best model here is closer to "
            "these rows than to new ones"
        )


def _outer(question: Question, confidence: float, loss_bound: float) -> Floats:
    """Bounds (p, 2) for the population, see the notes of `model_class_reliance`."""
    if question.reference_risk > loss_bound:
        raise ValueError(
            f"loss_bound={loss_bound:g} is what the loss of a row cannot exceed, but the reference's mean loss is "
            f"{question.reference_risk:g}"
        )
    warn("outer bounds by Hoeffding's inequality hold for every distribution and are usually very wide")
    n, B = question.rows.n, loss_bound
    term = math.log(6.0 / (1.0 - confidence))
    q1, q2 = B * math.sqrt(term / (2 * n)), B * math.sqrt(term / (2 * (n // 2)))
    # The mean of loss(f) - (1 + epsilon) loss(reference), whose range is (2 + epsilon) B.
    enlarged = question.bound + (2.0 + (question.epsilon if question.relative else 0.0)) * q1
    ranges = question.ranges(enlarged)
    low, high = np.asarray([r.lower for r in ranges]), np.asarray([r.upper for r in ranges])
    if np.isnan([low, high]).any():
        raise ValueError(
            f"confidence= needs certified ends, and those of {type(question.model_class).__name__} are achieved only"
        )
    if question.compare == "difference":
        return np.stack([low - q1 - q2, high + q1 + q2], axis=1)
    least = question.model_class.best(question.data).risk
    upper = (high * least + q2) / (least - q1) if least > q1 else np.full(len(high), math.inf)
    return np.stack([np.maximum((low * least - q2) / (least + q1), 0.0), upper], axis=1)
