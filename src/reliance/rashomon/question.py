"""A question about a class of models, checked: the rows, what counts as good, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, calls
from reliance._core.checks import check_choice
from reliance._core.progress import Progress, check_progress, reporting
from reliance._core.run import Run, resolved
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import shown
from reliance.data.passed import FeaturesLike, ModelLike
from reliance.data.rows import Rows, read
from reliance.inference import identified
from reliance.rashomon import jobs
from reliance.rashomon import reference as own_reliance
from reliance.rashomon import results as class_results
from reliance.rashomon.members import Members
from reliance.rashomon.model_classes import FiniteClass
from reliance.rashomon.protocol import ClassData, ListedClass, Member, ModelClass, Range
from reliance.rashomon.results import ClassReliance
from reliance.rashomon.tree_class import TreeClass

Floats = NDArray[np.float64]
# A model of the class, or its name in a list of models, or a risk.
Reference: TypeAlias = ModelLike | str | float | None
_COMPARE = ("ratio", "difference")


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
    run: Run  # who does the work

    def ranges(self, bound: float) -> list[Range]:
        features = self.rows.features
        unit = "rows" if isinstance(self.model_class, FiniteClass) else "features"
        some = jobs.OfFeatures(self.model_class, self.data, bound, self.compare, self.conditional)
        with reporting(self.progress, len(features), unit) as advance:
            if isinstance(self.model_class, ListedClass):  # all features of a model are measured together
                return some(features, advance)
            cut = jobs.pieces(features, self.data, self.run)
            found = jobs.answers(some, cut, self.model_class, self.data, self.run, advance, len)
            return [one for part in found for one in part]

    def result(
        self,
        found: list[Range],
        confidence: float | None = None,
        outer: Floats | None = None,
        end_errors: Floats | None = None,
        drawn: list[Floats] | None = None,
    ) -> ClassReliance:
        members = None
        if isinstance(self.model_class, ListedClass):
            features = self.rows.features
            every = self.model_class.members(self.data, self.bound, features, self.compare, self.conditional)
            scale, shift = (1.0 + self.epsilon, 0.0) if self.relative else (1.0, self.epsilon)
            place = None if self.reference is None or is_number(self.reference) else self.reference
            if is_number(self.reference):
                scale, shift = 0.0, self.bound
            members = every.resampled(None if place is None else self.model_class.position(place), scale, shift)
            members = members if drawn is None else members.drawn(drawn)
            end_errors = members.end_errors() if end_errors is None else end_errors
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
            end_errors=end_errors,
            reference_reliance=self._reference_reliance(members),
        )

    def of_sample(self, ids: NDArray[np.int64]) -> Question:
        """The same question about some of the rows, some of them more than once."""
        rows = self.rows.take(ids)
        data = _class_data(rows, self.model_class, self.data.key, Run(self.data.memory))
        against = _reference(self.model_class, data, self.reference)
        anchor, risk = (against, against.risk) if isinstance(against, Member) else (None, against)
        bound = self.bound if anchor is None else float(self.bound_of(np.asarray(risk)))
        known = replace(self, rows=rows, data=data, reference_risk=risk, bound=bound, anchor=anchor)
        return replace(known, progress=False, run=Run())

    def bound_of(self, risks: Floats) -> Floats:
        """What good models may have if the reference has a risk."""
        return (1.0 + self.epsilon) * risks if self.relative else risks + self.epsilon

    def _reference_reliance(self, members: Members | None) -> Floats | None:
        """What the reference relies on, where that costs nothing."""
        if members is not None:
            return own_reliance.of_listed(members, self.reference_risk)
        if self.anchor is None or self.conditional or self.model_class.loss != "squared_error":
            return None
        return own_reliance.of_linear(self.anchor, self.data, self.rows.features, self.compare)


def ask(
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
    sampled: bool = False,
) -> Question:
    """``sampled``: it is to be asked again on samples of the rows."""
    check_choice(compare, _COMPARE, "compare")
    if isinstance(model_class, type) or not all(hasattr(model_class, m) for m in ("best", "contains", "ranges")):
        raise TypeError(
            f"model_class={shown(model_class)} is not a class of models: pass rl.LinearClass(), for instance"
        )
    if not is_number(epsilon) or not 0.0 <= float(epsilon) < math.inf:
        raise ValueError(f"epsilon={shown(epsilon)}: pass a number of at least 0, how much worse a good model may be")
    if not isinstance(relative, bool | np.bool_):
        raise TypeError(
            f"relative={shown(relative)}: pass True for a share of the reference's risk, False for a risk added"
        )
    if isinstance(run, Run) and run.block is not None:
        raise ValueError(f"run has block={shown(run.block)}: a class of models has no blocks of rows; leave it out")
    if isinstance(run, Run) and run.device is not None:
        raise ValueError(f"run has device={shown(str(run.device))}: pass X on that device, for a class needs all rows")
    if isinstance(run, Run) and run.devices is not None:
        raise ValueError("run has devices=, but a class of models is searched where X is: leave devices out")
    if isinstance(run, Run) and run.workers is not None and isinstance(model_class, TreeClass) and not sampled:
        raise ValueError(
            f"run has workers={shown(run.workers)}: trees are listed in one thread; leave workers out, or ask for "
            "uncertainty=200, whose samples are shared out"
        )
    settings = resolved(run)
    if settings.checkpoint is not None or settings.ends_early or calls.at_work() is not None:
        raise ValueError(
            "searches in a class of models are not cut into units that could be counted or kept, or that a call could "
            "end with: leave rl.estimate, or checkpoint=, deadline= and on_interrupt= of rl.Run, out"
        )
    check_progress(progress)
    rows = read(X, y, features=features, names=names)
    data = _class_data(rows, model_class, resolve_key(rng), settings)
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
        settings,
    )


def is_number(x: object) -> TypeGuard[float]:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)


def _class_data(rows: Rows, model_class: ModelClass, key: int, run: Run) -> ClassData:
    y = rows.y
    if y is None:
        raise ValueError("y is None: the risk of models needs labels")
    if len(rows.shape) != 1:
        raise ValueError(f"X has rows of shape {rows.shape}: a class of models needs X (n, P)")
    host = arrays.to_host(y)
    if bool(np.all(host == host[:1])):
        raise ValueError("y is constant: there is nothing to predict, and no model relies on anything")
    if isinstance(model_class, ListedClass):  # its models take rows as they are, tables and several inputs, too
        return ClassData(rows.flat, y, key, run.bytes, rows, run)
    # Coefficients need numbers that can be multiplied with them.
    name = type(model_class).__name__
    numbers = rows.numbers(name)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"y has dtype {host.dtype}, but {name} needs numbers: encode the labels")
    if host.ndim != 1:
        raise ValueError(f"y has shape {host.shape}, but {name} has one output: pass y of shape ({host.shape[0]},)")
    return ClassData(arrays.as_floating(numbers), y, key, run.bytes, run=run)


def _reference(model_class: ModelClass, data: ClassData, reference: Reference) -> Member | float:
    """The model that others are compared with; or the risk, checked, where that was given."""
    if reference is None:
        return model_class.best(data)
    if not is_number(reference):
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
