"""Breiman's out-of-bag importance: each member of a bag is measured on the rows it was not fitted on.

One table serves all members: its rows are the pairs of a member and a row that was out of its bag. A feature is
borrowed within a member's own rows, and the engine is run on those pairs whose prediction the feature can move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Unpack, overload

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, threads
from reliance._core.checks import check_draws
from reliance._core.kinds import Array, HostArray
from reliance._core.progress import Progress, reporting
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import Indices, RandomState
from reliance._core.words import shown
from reliance.data.checked_arrays import as_array
from reliance.data.features import Feature
from reliance.data.passed import DataLike, FeaturesLike, LossesLike, LossLike, ModelLike
from reliance.engine import runners
from reliance.engine.problems import Problem, prepare
from reliance.engine.sending import Desk
from reliance.inference import identified
from reliance.inference.summary import Summary
from reliance.losses.functions import Metric, resolve_all
from reliance.methods.signatures import Shared
from reliance.models.calling import name_of
from reliance.models.default_losses import default_of_trees
from reliance.refit import running
from reliance.refit.bag_engine import Measured, measured
from reliance.refit.bag_inference import Sums
from reliance.refit.bag_pairs import left_out, make_pairs
from reliance.refit.bag_trees import check_fitted_on
from reliance.refit.bagged import Bag, read_bag
from reliance.results import gathered as results
from reliance.results.importance import Importance
from reliance.results.mapping import Results, one_or_all

Floats = NDArray[np.float64]
# Replacements that are looked at together. Most of those of trees change nothing and are never made; sums over rows and
# features are added once for all of them.
_MOST_USES = {True: 2**22, False: 2**19}
# Bytes that a replacement takes, at most: its place, its change of loss, and the arrays on the way to their sums.
_USE_BYTES = 128
# Arrays (p, n) that the sums and their changes take.
_SUMS = 8


@overload
def out_of_bag_importance(
    forest: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int = 1,
    keep: str | Sequence[str] = (),
    loss: LossLike | None = None,
    **options: Unpack[Shared],
) -> Importance: ...
@overload
def out_of_bag_importance(
    forest: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int = 1,
    keep: str | Sequence[str] = (),
    loss: LossesLike,
    **options: Unpack[Shared],
) -> Results[Importance]: ...
@public
def out_of_bag_importance(
    forest: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    draws: int = 1,
    loss: LossLike | LossesLike | None = None,
    features: FeaturesLike = None,
    weights: DataLike | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> Importance | Results[Importance]:
    r"""Importance of a forest or bagged ensemble, on the training rows that each of its members left out.

    Tree t is measured on the rows O_t that its bootstrap sample left out; these exchange a feature's values:

    .. math:: I_j = \frac{1}{B} \sum_{t=1}^{B} \frac{1}{|O_t| K} \sum_{i \in O_t} \sum_{k=1}^{K}
              \ell(f_t(x_i \text{ with feature } j \text{ of } x_{d_t(i,k)}), y_i) - \ell(f_t(x_i), y_i)

    with donors d_t(i, k) from O_t, never the row itself: after one random ordering of O_t, the row that stands s_k
    places further on. No other data are needed, and no row is measured by a tree that has seen it.

    Parameters
    ----------
    forest : fitted ensemble
        RandomForest*, ExtraTrees* (``bootstrap=True``) or Bagging* of scikit-learn, with any base estimator and with
        subsets of features; or any object with ``predict``, ``estimators_`` and ``estimators_samples_`` (for each
        estimator the rows of X that it was fitted on), for classifiers also ``classes_``, sorted.
    X, y : arrays (n, P), (n, ...)
        The training data, in the order of the fit, as NumPy arrays. Other rows or labels are an error where the trees
        tell: by the number of rows and features, by the counts in their leaves and the means at their roots.
    draws : int
        K, how often a feature is shifted in each tree. The trees already average over many donors: 1 is usual.
    loss : str, callable, Loss or a list of these, optional
        A loss of single rows, as in `ablation_importance`, of each tree's own prediction. By default "zero_one" (of the
        tree's label) for classifiers, as Breiman has it, and "squared_error" for regressors. "log_loss" is of the
        tree's shares of classes, which are often 0 and 1: then it is clipped.
    weights : array (n,), optional
        Weights of the rows' losses within each tree; trees count equally.
    keep : str or sequence of str
        ``"rows"`` keeps ``row_values`` (p, n), what each row contributes.

    Returns
    -------
    Importance
        Or `Results`, one by each loss's name, if ``loss`` is a list. ``tree_values`` (p, B) are the importances
        in each tree, ``z_scores()`` the forests' classical scores; ``draws_per_row`` counts all replacements of a row,
        over its trees; ``evaluations`` those predictions that had to be made, because the row's path through the tree
        tests the feature and the donor's value differs.

    Notes
    -----
    The target of the population interval is the importance of *these trees* on new rows: the mean over trees of the
    expected change of loss, row and donor new. A row's influence is the sum, over the trees that left it out, of its
    own changes of loss and of those that it caused as a donor, each around the tree's mean. Measured coverages are in
    the documentation. The spread over trees, which the classical z-score divides by, says how precisely more trees of
    the same data would agree, and shrinks to nothing with their number.

    Each tree is compared with itself: an ensemble, whose errors average out, relies less on a feature than its trees.

    References
    ----------
    Breiman, L. (2001). Random forests. Machine Learning 45, 5-32.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = 2 * X[:, 0] + X[:, 1]
    >>> forest = RandomForestRegressor(50, random_state=0).fit(X, y)
    >>> result = rl.out_of_bag_importance(forest, X, y, rng=0)
    >>> [result.names[i] for i in np.argsort(-result.values)]
    ['x0', 'x1', 'x2']
    """
    _check_host(X, forest)
    loss = default_of_trees(forest, None if y is None else as_array(y, "y")) if loss is None else loss
    for function in resolve_all(loss):
        if isinstance(function, Metric):
            raise ValueError(
                f"loss={shown(function.name)} is a metric of all rows together, and each tree has out-of-bag rows of "
                "its own: choose a loss of single rows, such as 'squared_error' or 'zero_one'"
            )
    problem = prepare(forest, X, y, features, loss, weights, rng, run, names, keep)
    running.check_no_folder(problem.run, "members of a forest")
    count = check_draws(draws)
    bag = read_bag(problem.model, _rows(problem, forest))
    table = _table(bag, problem.flat)
    check_fitted_on(bag, table[:, :-1], None if y is None else as_array(y, "y"))
    return _measure(problem, bag, table, left_out(bag, problem.n, problem.host_weights), count, progress)


def _check_host(X: object, forest: object) -> None:
    if arrays.is_array(X) and not isinstance(X, np.ndarray):
        raise TypeError(
            f"X is a {arrays.describe(X)} but the members of forest={name_of(forest)} are called on the host: pass X, "
            "y and weights as NumPy arrays, the ones that it was fitted on"
        )


def _rows(problem: Problem, forest: object) -> HostArray:
    numbers = problem.rows.numbers(f"forest={name_of(forest)}")
    return np.reshape(arrays.to_host(numbers), (problem.n, *problem.store.shape))


def _table(bag: Bag, X: Array) -> HostArray:
    """``(n, P + 1)``: the rows, with room for the number of a member."""
    table = np.zeros((X.shape[0], X.shape[1] + 1), dtype=bag.working)
    table[:, :-1] = X
    return table


def _measure(
    problem: Problem, bag: Bag, table: HostArray, outside: dict[int, Indices], draws: int, progress: Progress
) -> Importance | Results[Importance]:
    """All features, as many at a time as half of the memory holds the sums of; one result for each loss."""
    counts = [len(rows) for rows in outside.values()]
    each = 8 * len(problem.losses) * (len(outside) + _SUMS * problem.n)
    step = max(1, problem.memory // 2 // each)
    names = [feature.name for feature in problem.features]
    found: list[list[Summary]] = [[] for _ in problem.losses]
    trees: list[list[Floats]] = [[] for _ in problem.losses]
    evaluations, risks = np.zeros(0, dtype=np.int64), [0.0 for _ in problem.losses]
    with reporting(progress, len(names) * draws * sum(counts)) as advance:
        for start in range(0, len(names), step):
            features = problem.features[start : start + step]
            sums, made, block = _summed(problem, bag, table, outside, draws, features, advance)
            evaluations = np.concatenate([evaluations, made])
            for index, own in enumerate(sums):
                found[index] += own.summaries(float(np.mean(counts)), draws)
                trees[index].append(own.theta)
                risks[index] = float(own.risk)
    per_row = max(round(draws * sum(counts) / problem.n), 2)
    made_results, unknown = {}, identified.constant_unless_unused(problem)
    identified.warn(unknown, problem.features)
    for index, function in enumerate(problem.losses):
        result = results.from_summaries(
            names,
            identified.without_errors(unknown, problem.features, found[index]),
            base_risk=risks[index],
            compare="difference",
            method="out_of_bag_importance",
            loss=function.name,
            why_loss=function.why,
            plan=f"out-of-bag, {per_row} per row",
            units=problem.n,
            n=problem.n,
            draws_per_row=per_row,
            evaluations=evaluations.tolist(),
            routes=["plain" if count else "unused" for count in evaluations],
            block=block,
            key=problem.key,
            keep_rows="rows" in problem.keep,
        )
        made_results[function.name] = dataclasses.replace(result, tree_values=np.concatenate(trees[index]))
    return one_or_all(made_results, problem.several)


def _summed(
    problem: Problem,
    bag: Bag,
    table: HostArray,
    outside: dict[int, Indices],
    draws: int,
    features: tuple[Feature, ...],
    advance: Callable[[int], None],
) -> tuple[list[Sums], Indices, tuple[int, int]]:
    """The sums of some features over all members, evaluations, and the block."""
    p, first, block = len(features), 0, (0, 0)
    sums = [Sums.empty(p, problem.n, len(outside), "rows" in problem.keep) for _ in problem.losses]
    evaluations = np.zeros(p, dtype=np.int64)

    # Nobody asked for workers: trees answer on several threads all the same. Sums are added in the members' order.
    asked = problem.run.workers is not None or problem.run.devices is not None
    own_threads = threads.available() if bag.of_trees and not asked else 1
    most = min(_MOST_USES[bag.of_trees], problem.memory // (_USE_BYTES * own_threads))
    job = _Members(dataclasses.replace(problem, run=Run()), bag, table, outside, draws, features, most)
    run = dataclasses.replace(problem.run, workers=own_threads) if own_threads > 1 else problem.run
    with runners.opened(run, problem) as runner:
        for _, found in runner.each(job, advance):
            evaluations += np.bincount(found.uses.feature, minlength=p)
            block = max(block, found.block)
            for own, losses, change in zip(sums, found.base_losses, found.changes, strict=True):
                own.add(found.pairs, first, losses, found.uses, change)
            first += len(found.pairs.members)
    return sums, evaluations, block


@dataclass(frozen=True, eq=False)
class _Members:
    """The job: some members at a time, whose replacements are at most ``most``."""

    problem: Problem
    bag: Bag
    table: HostArray
    outside: dict[int, Indices]
    draws: int
    features: tuple[Feature, ...]
    most: int

    def items(self) -> Iterator[dict[int, Indices]]:
        return _chunks(self.outside, len(self.features) * self.draws, self.most)

    def do(self, some: dict[int, Indices], desk: Desk, advance: Callable[[int], None]) -> Measured:
        problem = self.problem
        pairs = make_pairs(some, problem.n, problem.key, self.draws, problem.host_weights, len(self.outside))
        found = measured(problem, self.bag, self.table, pairs, self.features)
        advance(self.size(some))
        return found

    def size(self, some: dict[int, Indices]) -> int:
        return len(self.features) * self.draws * sum(map(len, some.values()))

    @property
    def on_threads(self) -> bool:
        """Trees answer on several threads; other members may not be made for it."""
        return self.bag.of_trees

    def here(self) -> AbstractContextManager[None]:
        return nullcontext()

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sent(self) -> dict[str, object]:
        return {"forest": self.problem.model.source}


def _chunks(outside: dict[int, Indices], uses: int, most: int) -> Iterator[dict[int, Indices]]:
    """Some members at a time, at least one, whose pairs have so many uses each."""
    some: dict[int, Indices] = {}
    for number, rows in outside.items():
        if some and (sum(map(len, some.values())) + len(rows)) * uses > most:
            yield some
            some = {}
        some[number] = rows
    yield some
