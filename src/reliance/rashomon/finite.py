"""A list of fitted models as a class: seeds, checkpoints, folds, a leaderboard, an enumerated set of sparse trees."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MethodType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import streams
from reliance._core.kinds import Array
from reliance._core.progress import Reporter
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.data.passed import LossLike, ModelLike
from reliance.engine.problems import Problem, assembled
from reliance.losses.functions import Loss, resolve_all
from reliance.models import adapting, calling, modules
from reliance.models.default_losses import default_of_list
from reliance.rashomon import stacked
from reliance.rashomon.members import Members
from reliance.rashomon.protocol import ClassData, Member, Range
from reliance.rashomon.stacked import Fitted

Floats = NDArray[np.float64]
# Which random numbers the resampled rows are (see `rng.stream`), and how many samples of the rows are made at a time.
_RESAMPLES, _AT_ONCE = 102, 32
# Rows and labels at the device and dtype of torch modules.
_Homes: TypeAlias = dict[object, tuple[Array, Array | None]]


@dataclass(frozen=True, eq=False, init=False)
class FiniteClass:
    """A list of fitted models: the range is the smallest and the largest reliance among those that are good.

    Exact if the list is the class, every sparse tree up to a size, say. If it is a sample of a larger class, models of
    that class may lie outside of the range.

    All models share one pass over the replaced rows: a block is filled once, and every model is called on it. Linear
    models under squared error, trees and wide first layers have exact routes of their own (see
    `reliance.model_reliance`) and are measured by these. Models that are not good enough are measured only for a
    bootstrap.

    Parameters
    ----------
    models : list, or mapping from names
        Anything that `reliance.model_reliance` takes, on one device; each model once.
    loss : str or callable, optional
        A loss of single rows: a name, or ``loss(y, prediction) -> (m,)``. By default log loss if all models are
        classifiers with probabilities, zero-one if they are classifiers without, and squared error otherwise.
    bootstrap : int, optional
        B samples of the rows, for the distribution of reliance over data and good models (``result.members``). Risks
        are those of each sample, and so is what a ratio divides by. The increase of the risk is linear in how often a
        row was drawn, as base and as donor: exact to the first order, without evaluating a model again.

    References
    ----------
    Donnelly, J., Katta, S., Rudin, C., Browne, E. (2023). The Rashomon importance distribution. NeurIPS.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    >>> listed = {"first": lambda X: X[:, 0], "second": lambda X: X[:, 1], "bad": lambda X: -X[:, 0]}
    >>> y = X.mean(axis=1) + 0.1 * np.random.default_rng(1).normal(size=200)
    >>> result = rl.model_class_reliance(rl.FiniteClass(listed), X, y, epsilon=0.5)
    >>> result.achieved_lower.tolist(), bool(np.all(result.achieved_upper > 100))
    ([1.0, 1.0], True)
    >>> result.members.inside.tolist()
    [True, True, False]
    """

    models: dict[str, ModelLike]
    loss: str
    bootstrap: int | None
    _function: Loss = field(init=False, repr=False)

    def __init__(
        self,
        models: Iterable[ModelLike] | Mapping[str, ModelLike],
        loss: LossLike | None = None,
        bootstrap: int | None = None,
    ) -> None:
        named, count = _named(models), bootstrap
        if count is not None and (isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1):
            raise ValueError(f"bootstrap={shown(count)}: pass a number of samples of at least 1, or None")
        function, *more = (default_of_list(named.values()),) if loss is None else resolve_all(loss)
        if more:
            raise ValueError(f"loss={shown(loss)} names several: a class is judged by one loss")
        if not isinstance(function, Loss):
            raise ValueError(
                f"loss={shown(function.name)} is a metric of all rows together: a class needs a loss of single rows"
            )
        _check_devices(named)
        known = {"models": named, "loss": function.name, "bootstrap": count, "_function": function}
        for name, value in known.items():  # it is frozen
            object.__setattr__(self, name, value)

    def best(self, data: ClassData) -> Member:
        risks = self._state(data).risks
        return self._member(int(np.argmin(risks)), risks)

    def contains(self, data: ClassData, model: object) -> Member:
        return self._member(self.position(model), self._state(data).risks)

    def position(self, model: object) -> int:
        """Which model of the list a reference is: the object itself, or its name."""
        for k, (name, own) in enumerate(self.models.items()):
            if _same(model, own) or (isinstance(model, str) and model == name):
                return k
        given = repr(model) if isinstance(model, str) else calling.name_of(model)
        raise ValueError(
            f"reference={given} is not in the list of models, so it is outside the class: add it, or pass one of them "
            "or its name"
        )

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        members = self.members(data, bound, features, compare, conditional, advance)
        found = []
        for j in range(len(features)):
            known = np.where(members.inside, members.values[:, j], np.nan)
            least, most = int(np.nanargmin(known)), int(np.nanargmax(known))
            low, high = float(known[least]), float(known[most])
            ends = [self._member(k, members.risks) for k in (least, most)]
            found.append(Range(low, high, ends[0], ends[1], low, high))
        return found

    def members(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> Members:
        """Each model's risk and reliance; measured once for the same rows, features and comparison."""
        state = self._state(data)
        inside = state.risks <= bound
        if not inside.any():
            raise ValueError(
                f"no model of the list has a risk of at most {bound:g}, the least is {state.risks.min():g}: the "
                "Rashomon set is empty; pass a larger epsilon"
            )
        table = state.table(features, compare, conditional, self.bootstrap)
        wanted = inside if self.bootstrap is None else np.ones_like(inside)
        self._measure(state, table, wanted & ~table.measured, data.key, advance)
        values = np.where(table.measured[:, None], table.values, np.nan)
        if table.samples is None:
            return Members(tuple(self.models), state.risks, inside, values)
        return Members(tuple(self.models), state.risks, inside, values, table.samples, state.resampled(data.key, table))

    def _measure(
        self, state: _State, table: _Table, wanted: NDArray[np.bool_], key: int, advance: Callable[[int], None]
    ) -> None:
        """Fill in the values, and the values on samples of the rows, of some models."""
        parts = {k: state.fitted[k] for k in np.flatnonzero(wanted).tolist()}
        question, n = table.question, state.fitted[0].problem.n
        if question.compare == "ratio":
            for k, part in parts.items():
                if state.risks[k] <= 0.0:
                    raise ValueError(
                        f"compare='ratio' divides by the risk, which is {state.risks[k]:g} for {shown(part.name)}, not "
                        "above 0: pass compare='difference'"
                    )
        if isinstance(advance, Reporter):  # announced in features: here rows are what takes time
            advance.expect(len(parts) * len(question.features) * n**2 - advance.total)
        for found in stacked.reliances(question, parts, advance):
            rows = list(found.members)
            table.values[rows, found.features] = found.values
            if table.samples is None or found.influence is None:
                continue
            losses = np.stack([state.fitted[k].losses for k in rows])
            for some in _parts(len(table.samples)):
                weights = _resamples(key, n, some)
                moved = np.einsum("bn,mpn->bmp", weights - 1.0, found.influence, optimize=True) / n
                if question.compare == "ratio":  # of linear sums, over the sample's own risk
                    moved = _rescaled(moved, state.risks[rows], weights @ losses.T / n)
                table.samples[some, rows, found.features] = found.values + moved
        table.measured[wanted] = True

    def _state(self, data: ClassData) -> _State:
        known = _known.setdefault(data, {})
        if self not in known:
            homes: _Homes = {}
            fitted = [Fitted.of(name, self._problem(data, model, homes)) for name, model in self.models.items()]
            known[self] = _State(fitted, np.asarray([inference.risk(one.losses, None) for one in fitted]), {})
        return known[self]

    def _problem(self, data: ClassData, model: ModelLike, homes: _Homes) -> Problem:
        rows = data.rows
        assert rows is not None  # what a list of models is asked about
        if modules.is_torch_module(model) and rows.inputs is None and isinstance(rows.flat, np.ndarray):
            home = modules.home(model)
            if home not in homes:  # moved once, not once for each module
                homes[home] = calling.at_home(model, rows.flat, rows.y, None)[:2]
            rows = replace(rows, flat=homes[home][0], y=homes[home][1])
        found = assembled(model, rows, (self._function,), key=data.key, memory=data.memory)
        return replace(found, run=data.run)

    def _member(self, k: int, risks: Floats) -> Member:
        model = list(self.models.values())[k]
        call = model if callable(model) else adapting.adapt(model, [self._function]).predict
        return Member(call, float(risks[k]))


@dataclass(frozen=True, eq=False)
class _Table:
    """What was measured under one question so far: values (M, p) and, on samples of the rows, (B, M, p)."""

    question: stacked.Question
    measured: NDArray[np.bool_]
    values: Floats
    samples: Floats | None


@dataclass(frozen=True, eq=False)
class _State:
    """The models of a list on some rows."""

    fitted: list[Fitted]
    risks: Floats
    tables: dict[stacked.Question, _Table]

    def table(self, features: tuple[Feature, ...], compare: str, conditional: bool, samples: int | None) -> _Table:
        question = stacked.Question(features, compare, conditional, samples is not None)
        if question not in self.tables:
            shape = (len(self.fitted), len(features))
            drawn = None if samples is None else np.full((samples, *shape), np.nan)
            self.tables[question] = _Table(question, np.zeros(shape[0], dtype=bool), np.full(shape, np.nan), drawn)
        return self.tables[question]

    def resampled(self, key: int, table: _Table) -> Floats:
        """(B, M): the risks on samples of the rows."""
        assert table.samples is not None
        losses = np.stack([one.losses for one in self.fitted])
        n = losses.shape[1]
        return np.concatenate([_resamples(key, n, part) @ losses.T / n for part in _parts(len(table.samples))])


_known: weakref.WeakKeyDictionary[ClassData, dict[FiniteClass, _State]] = weakref.WeakKeyDictionary()


def _named(given: object) -> dict[str, ModelLike]:
    """The models by name, each once."""
    if not isinstance(given, Mapping) and (callable(given) or hasattr(given, "predict") or isinstance(given, str)):
        raise TypeError(f"models is a {type(given).__name__}, not a list: pass [model, ...] or a mapping from names")
    if not isinstance(given, Iterable):
        raise TypeError(f"models={shown(given)} is not a list: pass [model, ...] or a mapping from names")
    named = dict(given) if isinstance(given, Mapping) else {f"model {k}": m for k, m in enumerate(given)}
    if not named:
        raise ValueError("models is empty: pass at least one fitted model")
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"models has the name {shown(name)}, a {type(name).__name__}: pass names as text")
    for (one, model), (other, later) in combinations(named.items(), 2):
        if _same(model, later):
            raise ValueError(
                f"{shown(one)} and {shown(other)} are the same model: pass each once, copies of a model that is "
                "trained further"
            )
    return named


def _same(a: object, b: object) -> bool:
    return a is b or (isinstance(a, MethodType) and isinstance(b, MethodType) and a == b)


def _check_devices(named: dict[str, ModelLike]) -> None:
    """Rows are moved to where a torch module is; they cannot be in two places."""
    homes = {name: modules.home(model) for name, model in named.items() if modules.is_torch_module(model)}
    devices = {str(home[0]): name for name, home in homes.items() if home is not None}
    if len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise ValueError(f"{shown(first)} is on {one} and {shown(second)} on {other}: move the models to one device")


def _rescaled(moved: Floats, risks: Floats, sample_risks: Floats) -> Floats:
    """Changes (B, m, p) of ratios to all rows' risks, as those of ratios to the samples' risks; infinite at risk 0."""
    scale = np.full_like(sample_risks, np.inf)
    np.divide(risks, sample_risks, out=scale, where=sample_risks > 0.0)
    scale = scale[:, :, None]
    signed = np.where(np.isinf(scale), np.abs(moved), moved)
    return np.multiply(signed, scale, out=np.zeros_like(moved), where=moved != 0.0)


def _parts(samples: int) -> list[slice]:
    return [slice(start, min(start + _AT_ONCE, samples)) for start in range(0, samples, _AT_ONCE)]


def _resamples(key: int, n: int, samples: slice) -> Floats:
    """How often each row is drawn, (samples, n)."""
    drawn = (streams.stream(key, _RESAMPLES, b).integers(n, size=n) for b in range(samples.start, samples.stop))
    return np.stack([np.bincount(rows, minlength=n) for rows in drawn]).astype(np.float64)
