"""Several models on the same rows with the same donors: importances of each, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from reliance import plans
from reliance._core import arrays
from reliance._core.checks import check_choice
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import listed, shown
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.engine.problems import Problem, prepare
from reliance.engine.rounding import ROUNDING
from reliance.inference.variance import skewness
from reliance.methods import by_model
from reliance.methods.drawing import DEFAULT, Draws, drawn
from reliance.methods.lending import all_lent
from reliance.methods.measuring import COMPARE, KEEPS, measure
from reliance.plans import Plan
from reliance.results.importance import Importance
from reliance.results.models import ModelComparison

Floats = NDArray[np.float64]


@public
def compare_models(
    models: Mapping[str, ModelLike],
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: str | int | Draws = DEFAULT,
    loss: LossLike | None = None,
    compare: str = "difference",
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    clusters: ClustersLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> ModelComparison:
    """Importances of several models, and whether they differ: paired intervals and tests for every feature.

    All models are measured on the same rows, with the same donors in every draw. What a row or a donor does to two
    models alike cancels in their difference, so that differences are known far better than each importance by itself:
    checkpoints of a network, a model and its smaller successor, networks of two architectures.

    Parameters
    ----------
    models : mapping from names to models
        At least two. Each is anything that `permutation_importance` takes; they need not be of the same library.
    draws : "all", int or Draws
        How often each row is replaced; ``"all"``: every row borrows from every other one.
    loss : str, callable or Metric, optional
        One loss, the same for all models. By default the one that fits them, if it is the same.
    keep : str or sequence of str
        ``"rows"`` and ``"influence"`` keep these in the result of each model; with the latter it has ``ranks()``.

    Returns
    -------
    ModelComparison
        ``result["a"]`` is the `Importance` of one model, ``result.delta("a", "b")`` the paired difference of two, with
        ``interval()`` and ``test()``.

    Notes
    -----
    The error of a difference is the spread of the differences of the rows' influence values. With few draws these hold
    some of the noise of the draws, so that intervals are on the wide side: in a simulation of linear models of 120 rows
    standard errors were right at 16 draws and 1.2 to 1.3 times too large at 3.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = X[:, 0] + X[:, 1] + np.random.default_rng(1).normal(size=300)
    >>> both = rl.compare_models({"whole": lambda X: X[:, 0] + X[:, 1], "half": lambda X: X[:, 0]}, X, y, rng=0)
    >>> (both.delta("whole", "half").test().p_adjusted < 0.001).tolist()
    [False, True]
    """
    asked, key = by_model.checked(models, "models", fewest=2), resolve_key(rng)
    if isinstance(loss, list | tuple | Mapping):
        raise ValueError(f"loss={shown(loss)} names several: compare models under one loss at a time")
    plan: Plan | None = None
    found: dict[str, Importance] = {}
    moved: list[Floats] = []
    unit = float(np.finfo(np.float64).eps)
    for name, model in asked.items():
        with by_model.about(name):
            problem = prepare(model, X, y, features, loss, weights, key, run, names, keep, KEEPS, clusters)
            plan = _plan(problem, draws) if plan is None else plan
            found[name], psi = _measured(problem, plan, compare, progress, quiet=bool(found))
            moved.append(psi)
            unit = max(unit, arrays.epsilon(problem.flat))
        _check_alike(found)
    values, errors, skewed = _differences(list(found.values()), moved, unit)
    return ModelComparison(found, differences=values, std_errors=errors, skewness=skewed)


def _plan(problem: Problem, draws: str | int | Draws) -> Plan:
    """Of the first model, and so of all: donors are sorted by the values that it is given."""
    if isinstance(draws, str):
        if draws != "all":
            raise ValueError(f"draws={shown(draws)} is unknown: pass 'all' or a number of draws")
        return all_lent(problem.rows, problem.key, "draws") or plans.Pairs(problem.n)
    return drawn(problem.rows, problem.key, draws)


def _check_alike(found: Mapping[str, Importance]) -> None:
    """Only what was measured by the same loss on the same features has a difference."""
    (a, one), (b, other) = next(iter(found.items())), list(found.items())[-1]
    if one.loss != other.loss:
        raise ValueError(
            f"the models {shown(a)} and {shown(b)} are judged by {shown(one.loss)} and {shown(other.loss)} by default: "
            "pass loss=, so that they are judged alike"
        )
    if one.names != other.names:
        raise ValueError(
            f"the models {shown(a)} and {shown(b)} have the features {listed(one.names, 3)} and "
            f"{listed(other.names, 3)}: they must be the same"
        )


# ---------------------------------------------------------------------------------------------------------------------
# One model, and differences of two


def _measured(problem: Problem, plan: Plan, compare: str, progress: Progress, quiet: bool) -> tuple[Importance, Floats]:
    """A model's importances, and how far each unit moves them, (p, units): nan where that is not known."""
    check_choice(compare, COMPARE, "compare")
    wanted = replace(problem, keep=problem.keep | {"influence"})
    result = measure(wanted, plan, compare, "compare_models", progress, "auto", quiet)
    assert isinstance(result, Importance)
    assert result.influence is not None  # it was asked for
    psi = result.influence.rows
    unknown = np.full((len(result.names), result.units), np.nan)
    kept = result if "influence" in problem.keep else replace(result, influence=None)
    return kept, unknown if psi is None else psi


def _differences(results: Sequence[Importance], moved: Sequence[Floats], unit: float) -> tuple[Floats, Floats, Floats]:
    """Values, standard errors and skewness (m, m, p) of the difference of any two models, from psi (p, units) of each.

    ``unit``: the spacing of numbers at 1. What rounding leaves of two models that do the same is 0: an error as small
    would make it significant.
    """
    m, p = len(results), len(results[0].names)
    values, errors, skewed = (np.zeros((m, m, p)) for _ in range(3))
    for a in range(m):
        for b in range(a):
            psi = moved[a] - moved[b]
            with np.errstate(invalid="ignore"):  # of two infinite ones, nothing is known
                value = results[a].values - results[b].values
            variance = np.var(psi, axis=1, ddof=1) / psi.shape[1]
            least = ROUNDING * unit * (_size(results[a]) + _size(results[b]))
            rounded = (np.abs(value) <= least) & (variance <= least**2)
            value[rounded], variance[rounded] = 0.0, 0.0
            # Of a feature that is not identified in one of them, nothing is known of the difference either.
            variance[np.isnan(results[a].std_error) | np.isnan(results[b].std_error)] = np.nan
            values[a, b], values[b, a] = value, -value
            errors[a, b] = errors[b, a] = np.sqrt(variance)
            gamma = [float(skewness(one, v)) for one, v in zip(psi, variance, strict=True)]
            skewed[a, b], skewed[b, a] = gamma, np.negative(gamma)
    return values, errors, skewed


def _size(result: Importance) -> Floats:
    """Of the numbers, feature by feature, that an importance is a difference or a ratio of."""
    return np.abs(result.values) + (abs(result.base_risk) if result.compare == "difference" else 1.0)
