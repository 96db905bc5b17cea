"""A list of fitted models as a class: seeds, checkpoints, folds, a leaderboard, an enumerated set of sparse trees."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance import blocks, conditional, inference, models, plans, rng, variables
from reliance.classes.protocol import ClassData, Member, Range
from reliance.executors import Base, Caller
from reliance.features import Feature
from reliance.inputs import Problem, prepare
from reliance.losses import Loss, resolve_all
from reliance.scrambling import Scrambler
from reliance.structure import routes

Floats = NDArray[np.float64]
# Which random numbers the resampled rows are (see `rng.stream`), and how many samples of the rows are made at a time.
_RESAMPLES, _AT_ONCE = 102, 32


@dataclass(frozen=True, eq=False)
class Members:
    """The models of a finite class, one by one.

    Attributes
    ----------
    names : tuple of str
        The M models.
    risks : array (M,)
    inside : boolean array (M,)
        Whether they are in the Rashomon set.
    values : array (M, p)
        Their reliance on each feature; nan for models that were not measured, being outside.
    sample_values, sample_risks, sample_inside : arrays (B, M, p), (B, M), (B, M), or None
        The same on B bootstrap samples of the rows (``FiniteClass(bootstrap=B)``).
    """

    names: tuple[str, ...]
    risks: Floats
    inside: NDArray[np.bool_]
    values: Floats
    sample_values: Floats | None = None
    sample_risks: Floats | None = None
    sample_inside: NDArray[np.bool_] | None = None

    def resampled(self, reference: int | None, scale: float, shift: float) -> Members:
        """With who is in the set of each sample: risk <= scale * (risk of the reference, or of the best) + shift."""
        if self.sample_risks is None:
            return self
        against = self.sample_risks.min(axis=1) if reference is None else self.sample_risks[:, reference]
        inside = self.sample_risks <= scale * against[:, None] + shift
        return replace(self, sample_inside=inside)

    def distribution(self, feature: int) -> tuple[Floats, Floats]:
        """Values of one feature over samples and their good models, and their weights, which sum to 1.

        Each sample of the rows counts equally, and within it each model of its Rashomon set: the Rashomon importance
        distribution of Donnelly et al. (2023).
        """
        if self.sample_values is None or self.sample_inside is None:
            raise ValueError("there are no samples of the rows: pass FiniteClass(models, bootstrap=500)")
        inside = self.sample_inside
        counts = inside.sum(axis=1, keepdims=True)
        weights = np.where(inside, 1.0 / np.maximum(counts, 1), 0.0) / max(int(np.sum(counts > 0)), 1)
        return self.sample_values[:, :, feature][inside], weights[inside]

    def quantiles(self, levels: Any = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles (p, len(levels)) of each feature's `distribution`."""
        return np.stack([_quantiles(*self.distribution(j), np.asarray(levels)) for j in range(self.values.shape[1])])


def _quantiles(values: Floats, weights: Floats, levels: Floats) -> Floats:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return np.asarray(values[order][np.minimum(np.searchsorted(reached, levels * reached[-1]), len(values) - 1)])


@dataclass(frozen=True, eq=False)
class FiniteClass:
    """A list of fitted models: the range is the smallest and the largest reliance among those that are good.

    Exact if the list is the class, every sparse tree up to a size, say. If it is a sample of a larger class, models of
    that class may lie outside of the range. One run of the engine measures each model, by the cheapest exact route that
    it has (see `reliance.model_reliance`); models that are not good enough are measured only for a bootstrap.

    Parameters
    ----------
    models : list, or mapping from names
        Anything that `reliance.model_reliance` takes, on one device.
    loss : str or callable
        A loss of single rows: a name, or ``loss(y, prediction) -> (m,)``.
    bootstrap : int, optional
        B samples of the rows, for the distribution of reliance over data and good models (``result.members``). Risks
        are those of each sample. Reliances are linear in how often a row was drawn, as base and as donor: exact to the
        first order in 1/n, without evaluating a model again.

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

    models: Iterable[Any] | Mapping[str, Any]
    loss: Any = "squared_error"
    bootstrap: int | None = None

    def __post_init__(self) -> None:
        given = self.models
        named = dict(given) if isinstance(given, Mapping) else {f"model {k}": m for k, m in enumerate(given)}
        object.__setattr__(self, "models", named)
        if not named:
            raise ValueError("models is empty: pass at least one fitted model")
        count = self.bootstrap
        if count is not None and (isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1):
            raise ValueError(f"bootstrap={count!r}: pass a number of samples of at least 1, or None")
        function = resolve_all(self.loss)[0]
        if not isinstance(function, Loss):
            raise ValueError(
                f"loss={function.name!r} is a metric of all rows together: a class needs a loss of single rows"
            )
        object.__setattr__(self, "_function", function)
        object.__setattr__(self, "loss", function.name)
        _check_devices(named)

    @property
    def named(self) -> dict[str, Any]:
        return self.models  # type: ignore[return-value]

    def best(self, data: ClassData) -> Member:
        risks = self._risks(data)
        return self._member(int(np.argmin(risks)), risks)

    def contains(self, data: ClassData, model: Any) -> Member:
        return self._member(self.position(model), self._risks(data))

    def position(self, model: Any) -> int:
        """Which model of the list a reference is: the object itself, or its name."""
        for k, (name, own) in enumerate(self.named.items()):
            if model is own or (isinstance(model, str) and model == name):
                return k
        given = model if isinstance(model, str) else models.name_of(model)
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
        members = self.members(data, bound, features, compare, conditional)
        found = []
        for j in range(len(features)):
            known = np.where(members.inside, members.values[:, j], np.nan)
            least, most = int(np.nanargmin(known)), int(np.nanargmax(known))
            low, high = float(known[least]), float(known[most])
            ends = [self._member(k, members.risks) for k in (least, most)]
            found.append(Range(low, high, ends[0], ends[1], low, high))
            advance(1)
        return found

    def members(
        self, data: ClassData, bound: float, features: tuple[Feature, ...], compare: str, conditional: bool
    ) -> Members:
        """Each model's risk and reliance; measured once for the same rows, features and comparison."""
        key = (bound, features, compare, conditional)
        cache = _known.setdefault(data, {}).setdefault(self, {})
        if key not in cache:
            cache[key] = self._members(data, bound, features, compare, conditional)
        found: Members = cache[key]
        return found

    def _members(
        self, data: ClassData, bound: float, features: tuple[Feature, ...], compare: str, conditional: bool
    ) -> Members:
        risks = self._risks(data)
        inside = risks <= bound
        count, p = self.bootstrap, len(features)
        values = np.full((len(risks), p), np.nan)
        samples = None if count is None else (np.empty((count, len(risks), p)), np.empty((count, len(risks))))
        for k, model in enumerate(self.named.values()):
            if not inside[k] and samples is None:
                continue
            measure = _scrambled if conditional else _switched
            values[k], influence, losses = measure(self._problem(data, model, features), compare)
            if samples is not None:
                for start in range(0, len(samples[0]), _AT_ONCE):
                    part = slice(start, min(start + _AT_ONCE, len(samples[0])))
                    weights = _resamples(data.key, len(losses), part)
                    samples[0][part, k] = values[k] + (weights - 1.0) @ influence.T / len(losses)
                    samples[1][part, k] = weights @ losses / len(losses)
        return Members(tuple(self.named), risks, inside, values, *(samples or ()))

    def _risks(self, data: ClassData) -> Floats:
        cache = _known.setdefault(data, {}).setdefault(self, {})
        if "risks" not in cache:
            problems = (self._problem(data, model, None) for model in self.named.values())
            cache["risks"] = np.asarray([inference.risk(_base(p)[1].host_losses[0], None) for p in problems])
        found: Floats = cache["risks"]
        return found

    def _problem(self, data: ClassData, model: Any, features: tuple[Feature, ...] | None) -> Problem:
        function = self._function  # type: ignore[attr-defined]
        problem = prepare(model, data.X, data.y, None, function, rng=data.key, memory=data.memory)
        return problem if features is None else replace(problem, features=features)

    def _member(self, k: int, risks: Floats) -> Member:
        model = list(self.named.values())[k]
        call = model if callable(model) else models.adapt(model, [self._function]).predict  # type: ignore[attr-defined]
        return Member(call, float(risks[k]))


_known: weakref.WeakKeyDictionary[ClassData, dict[FiniteClass, dict[Any, Any]]] = weakref.WeakKeyDictionary()


def _check_devices(named: dict[str, Any]) -> None:
    """Rows are moved to where a torch module is; they cannot be in two places."""
    homes = {name: models.torch_home(model) for name, model in named.items() if models.is_torch_module(model)}
    devices = {str(home[0]): name for name, home in homes.items() if home is not None}
    if len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise ValueError(f"{first!r} is on {one} and {second!r} on {other}: move the models to one device")


def _base(problem: Problem) -> tuple[Caller, Base]:
    call = Caller(problem.model, problem.flat.dtype, blocks.call_rows(problem))
    with blocks.session(problem):
        return call, blocks.base_pass(problem, call)


def _switched(problem: Problem, compare: str) -> tuple[Floats, Floats, Floats]:
    """Reliance (p,) over all pairs, how each row moves it (p, n), and the rows' losses (n,)."""
    call, base = _base(problem)
    plan = plans.Pairs(problem.n)
    with blocks.session(problem):
        jobs = routes.jobs(problem, base, plan, "auto")
        run, jobs = routes.run(problem, jobs, base, call, "auto")
    linear = {f.name: job.linear for job in jobs for f in job.features if job.linear is not None}
    losses, found = base.host_losses[0], []
    for feature in problem.features:
        route = linear.get(feature.name)
        moments = run.moments[feature.name][0] if route is None else route.moments(feature)
        found.append(inference.summarize(moments, losses, None, plan, compare, effect=np.zeros(problem.n)))
    return np.asarray([s.value for s in found]), np.stack([_influence(s.influence) for s in found]), losses


def _scrambled(problem: Problem, compare: str) -> tuple[Floats, Floats, Floats]:
    """The same with residuals exchanged."""
    known, plan = variables.gather(problem, None, None, None), plans.Pairs(problem.n)
    method, rest = "conditional_model_reliance", {"": variables.REST}
    measured = conditional._measure(problem, known, None, Scrambler(), plan, compare, rest, method)
    found = measured[problem.losses[0].name]
    return found[""].values, _influence(found.influences[""].rows), _base(problem)[1].host_losses[0]


def _influence(rows: Floats | None) -> Floats:
    assert rows is not None
    return rows


def _resamples(key: int, n: int, samples: slice) -> Floats:
    """How often each row is drawn, (samples, n)."""
    drawn = (rng.stream(key, _RESAMPLES, b).integers(n, size=n) for b in range(samples.start, samples.stop))
    return np.stack([np.bincount(rows, minlength=n) for rows in drawn]).astype(np.float64)
