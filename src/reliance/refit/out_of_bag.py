"""Breiman's out-of-bag importance: each member of a bag is measured on the rows it was not fitted on.

One table serves all members: its rows are the pairs of a member and a row that was out of its bag. A feature is
borrowed within a member's own rows, and the engine is run on those pairs whose prediction the feature can move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, threads
from reliance._core.arrays import Array
from reliance._core.run import Run
from reliance._core.streams import Indices, RandomState
from reliance._core.words import shown
from reliance.data.checked_arrays import as_array
from reliance.data.features import Feature
from reliance.engine import blocks
from reliance.engine.executors import Base, Caller
from reliance.engine.inputs import Problem, Progress, check_draws, prepare
from reliance.engine.stores import ArrayStore
from reliance.exact.trees import in_order
from reliance.inference import identified
from reliance.inference.summary import Summary
from reliance.losses.functions import Metric, resolve_all
from reliance.models.calling import Model, name_of
from reliance.plans import Drawn, Users
from reliance.refit.bag_inference import Sums
from reliance.refit.bag_pairs import Pairs, Uses, find_uses, left_out, make_pairs, padded_columns
from reliance.refit.bag_trees import Words, check_fitted_on, differences, walk
from reliance.refit.bagged import Bag, read_bag
from reliance.results import importance as results
from reliance.results.importance import Importance
from reliance.results.mapping import Results, one_or_all

Floats = NDArray[np.float64]
_BLOCK_ROWS = 16384
# Replacements that are looked at together. Most of those of trees change nothing and are never made; sums over rows and
# features are added once for all of them.
_MOST_USES = {True: 2**22, False: 2**19}
# Bytes that a replacement takes, at most: its place, its change of loss, and the arrays on the way to their sums.
_USE_BYTES = 128
# Arrays (p, n) that the sums and their changes take.
_SUMS = 8
# The engine is told of one feature. Which columns each row borrows, its store knows.
_ANY = Feature("of any name", ())


def out_of_bag_importance(
    forest: Any,
    X: Array,
    y: Array | None = None,
    *,
    draws: int = 1,
    loss: Any = "squared_error",
    features: Any = None,
    weights: Array | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
) -> Importance | Results[Importance]:
    r"""Out-of-bag importance of a bagged ensemble, from the data it was fitted on.

    Every tree t is measured on the rows O_t that its bootstrap sample left out, a feature being shifted among them:

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
    loss : str, callable, Loss or a list of these
        A loss of single rows, as in `ablation_importance`, of each tree's own prediction; for classifiers "zero_one"
        (of the tree's label) or "log_loss" (of its shares of classes, which are often 0 and 1: then it is clipped).
    features, weights, rng, run, progress, names, keep
        As in `ablation_importance`. Weights are those of the rows within each tree; trees count equally.

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
    for function in resolve_all(loss):
        if isinstance(function, Metric):
            raise ValueError(
                f"loss={shown(function.name)} is a metric of all rows together, and each tree has out-of-bag rows of "
                "its own: choose a loss of single rows, such as 'squared_error' or 'zero_one'"
            )
    problem = prepare(forest, X, y, features, loss, weights, rng, run, progress, names, keep)
    count = check_draws(draws)
    bag = read_bag(problem.model, _rows(problem, forest))
    table = _table(bag, problem.flat)
    check_fitted_on(bag, table[:, :-1], None if y is None else as_array(y, "y"))
    return _measure(problem, bag, table, left_out(bag, problem.n, problem.host_weights), count)


def _check_host(X: Any, forest: Any) -> None:
    if arrays.is_array(X) and not isinstance(X, np.ndarray):
        raise TypeError(
            f"X is a {arrays.describe(X)} but the members of forest={name_of(forest)} are called on the host: pass X, "
            "y and weights as NumPy arrays, the ones that it was fitted on"
        )


def _rows(problem: Problem, forest: Any) -> NDArray[Any]:
    numbers = problem.numbers(f"forest={name_of(forest)}")
    rows: NDArray[Any] = np.reshape(numbers, (problem.n, *problem.store.shape))
    return rows


def _table(bag: Bag, X: NDArray[Any]) -> NDArray[Any]:
    """``(n, P + 1)``: the rows, with room for the number of a member."""
    table = np.zeros((X.shape[0], X.shape[1] + 1), dtype=bag.working)
    table[:, :-1] = X
    return table


# ---------------------------------------------------------------------------------------------------------------------
# In the engine: some members at a time


@dataclass(frozen=True)
class _Borrowers(ArrayStore):
    """Rows of a table as often as they borrow a feature, each with the number of the member that is asked."""

    pairs: Pairs
    uses: Uses
    columns: Indices

    @property
    def n(self) -> int:
        return len(self.uses.pair)

    @property
    def held_bytes(self) -> int:
        return 100 * self.n

    def repeat(self, block: Array, rows: range, d: int) -> None:
        own, pair = block[: len(rows), :], self.uses.pair[rows.start : rows.stop]
        np.take(self.flat, self.pairs.row[pair], axis=0, out=own, mode="clip")
        own[:, -1] = self.pairs.member[pair]

    def restore(self, block: Array, rows: range, d: int, feature: Feature) -> None:
        """Nothing is read again: every block is filled for one call."""

    def holds(self, block: Array, rows: range, d: int, feature: Feature | None) -> None:
        """Nothing is read again."""

    def swap(self, block: Array, rows: range, d: int, feature: Feature, donors: range | Array) -> None:
        place, lender = np.arange(len(rows)), np.asarray(donors)[:, 0]
        for columns in self.columns:
            column = columns[self.uses.feature[rows.start : rows.stop]]
            block[place, column] = self.flat[lender, column]


@dataclass(frozen=True, eq=False)
class _Borrowed(Drawn):
    """The plan of a list of borrowers, one draw: who lends to each is known. Its donor sums are the borrowers' own."""

    donor: Indices
    draws: int = 1

    @property
    def n(self) -> int:
        return len(self.donor)

    def donors(self, rows: range, columns: range) -> Indices:
        return self.donor[rows.start : rows.stop, None]

    def users(self, columns: range) -> Users:
        return Users(np.arange(self.n), None)

    def spread(self, v: Floats) -> Floats:
        return v


def _measure(
    problem: Problem, bag: Bag, table: NDArray[Any], outside: dict[int, Indices], draws: int
) -> Importance | Results[Importance]:
    """All features, as many at a time as half of the memory holds the sums of; one result for each loss."""
    counts = [len(rows) for rows in outside.values()]
    each = 8 * len(problem.losses) * (len(outside) + _SUMS * problem.n)
    step = max(1, problem.memory // 2 // each)
    names = [feature.name for feature in problem.features]
    found: list[list[Summary]] = [[] for _ in problem.losses]
    trees: list[list[Floats]] = [[] for _ in problem.losses]
    evaluations, risks = np.zeros(0, dtype=np.int64), [0.0 for _ in problem.losses]
    with blocks.session(problem), blocks.progress(problem, len(names) * draws * sum(counts)) as advance:
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
    identified.warn(unknown, problem.features, stacklevel=4)
    for index, function in enumerate(problem.losses):
        result = results.from_summaries(
            names,
            identified.without_errors(unknown, problem.features, found[index]),
            base_risk=risks[index],
            compare="difference",
            method="out_of_bag_importance",
            loss=function.name,
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
    table: NDArray[Any],
    outside: dict[int, Indices],
    draws: int,
    features: tuple[Feature, ...],
    advance: Callable[[int], None],
) -> tuple[list[Sums], Indices, tuple[int, int]]:
    """The sums of some features over all members, evaluations, and the block."""
    p, first, block = len(features), 0, (0, 0)
    sums = [Sums.empty(p, problem.n, len(outside), "rows" in problem.keep) for _ in problem.losses]
    evaluations = np.zeros(p, dtype=np.int64)

    def measured(some: dict[int, Indices]) -> _Measured:
        pairs = make_pairs(some, problem.n, problem.key, draws, problem.host_weights, len(outside))
        return _measured(problem, bag, table, pairs, features)

    # Trees answer on several threads; other members may not be made for it. Sums are added in the members' order.
    workers = threads.available() if bag.of_trees else 1
    most = min(_MOST_USES[bag.of_trees], problem.memory // (_USE_BYTES * workers))
    for found in in_order(measured, _chunks(outside, p * draws, most), workers):
        evaluations += np.bincount(found.uses.feature, minlength=p)
        block = max(block, found.block)
        for own, losses, change in zip(sums, found.base_losses, found.changes, strict=True):
            own.add(found.pairs, first, losses, found.uses, change)
        first += len(found.pairs.members)
        advance(p * found.pairs.donor.size)
    return sums, evaluations, block


class _Measured(NamedTuple):
    """Some members: their pairs and base losses, which replacements can matter, and their changes of each loss."""

    pairs: Pairs
    base_losses: tuple[Floats, ...]
    uses: Uses
    changes: list[Floats]
    block: tuple[int, int]


def _measured(
    problem: Problem, bag: Bag, table: NDArray[Any], pairs: Pairs, features: tuple[Feature, ...]
) -> _Measured:
    # The pairs have their own weights, which the sums take.
    model = Model(bag.predict, bag.source, block_rows=_BLOCK_ROWS)
    problem = dataclasses.replace(problem, model=model, weights=None)
    answers, flips = _answers(bag, table, pairs)
    base = _base(problem, pairs, answers)
    uses = find_uses(pairs, flips, table.shape[1] - 1, features)
    changes, block = [np.zeros(len(uses.pair)) for _ in problem.losses], (0, 0)
    for at in _runs(bag, uses, len(features)):
        run = _evaluated(problem, table, pairs, base, uses.at(at), features)
        block = max(block, run.block)
        for change, moments in zip(changes, run.moments[_ANY.name], strict=True):
            change[at] = moments.row_sum
    return _Measured(pairs, base.host_losses, uses, changes, block)


def _chunks(outside: dict[int, Indices], uses: int, most: int) -> Iterator[dict[int, Indices]]:
    """Some members at a time, at least one, whose pairs have so many uses each."""
    some: dict[int, Indices] = {}
    for number, rows in outside.items():
        if some and (sum(map(len, some.values())) + len(rows)) * uses > most:
            yield some
            some = {}
        some[number] = rows
    yield some


def _answers(bag: Bag, table: NDArray[Any], pairs: Pairs) -> tuple[NDArray[Any], Words]:
    """Of each pair ``(M, ...)`` the member's answer, and ``(M, K, words)`` the columns that can change it."""
    members = [bag.members[number] for number in pairs.members]
    if bag.of_trees:
        leaf, flips = walk(members, table, pairs.tree, pairs.row, pairs.donor)
        return np.concatenate([m.at_leaf(leaf[at]) for m, (_, at) in zip(members, pairs.each(), strict=True)]), flips
    answers, words = [], []
    for member, (_, at) in zip(members, pairs.each(), strict=True):
        own = table[pairs.row[at]]
        answers.append(member.answer(bag.rows(own)))
        lent = (table[donor] for donor in pairs.donor[at].T)
        words.append(np.stack([differences(member, own[:, :-1], other[:, :-1]) for other in lent], axis=1))
    return np.concatenate(answers), np.concatenate(words)


def _base(problem: Problem, pairs: Pairs, answers: NDArray[Any]) -> Base:
    """The engine's base pass, for its checks and the losses: the members have answered, it reads by numbers."""
    numbered = dataclasses.replace(
        problem,
        model=Model(lambda block: answers[block[:, 0].astype(np.int64)], problem.model.source),
        store=ArrayStore(np.arange(len(pairs.row), dtype=np.float64)[:, None], (1,)),
        targets=tuple(None if target is None else target[pairs.row] for target in problem.targets),
    )
    return blocks.base_pass(numbered, Caller(numbered.model), probed=False)


def _runs(bag: Bag, uses: Uses, p: int) -> Iterator[Indices | slice]:
    """Which uses the engine sees together: all of trees, which repeat themselves exactly; otherwise a feature's.

    A model that computes the same row a little differently in another batch must not seem to use a feature, which the
    engine finds out feature by feature.
    """
    if bag.of_trees:
        if len(uses.pair):
            yield slice(None)
        return
    for feature in range(p):
        at = np.flatnonzero(uses.feature == feature)
        if at.size:
            yield at


def _evaluated(
    problem: Problem,
    table: NDArray[Any],
    pairs: Pairs,
    base: Base,
    uses: Uses,
    features: tuple[Feature, ...],
) -> blocks.Run:
    """The changes of loss of some uses, by the engine."""
    if len(uses.pair) == 1:  # it lends among at least two rows
        run = _evaluated(problem, table, pairs, base, uses.at(np.zeros(2, dtype=np.int64)), features)
        first = tuple(dataclasses.replace(m, row_sum=m.row_sum[:1]) for m in run.moments[_ANY.name])
        return blocks.Run({_ANY.name: first}, run.block)
    own = dataclasses.replace(
        base,
        predictions=base.predictions[uses.pair],
        slack=base.slack[uses.pair],
        targets=tuple(target[uses.pair] for target in base.targets),
        losses=tuple(losses[uses.pair] for losses in base.losses),
    )
    store = _Borrowers(table, (table.shape[1],), pairs, uses, padded_columns(features))
    plan = _Borrowed(pairs.donor[uses.pair, uses.draw])
    problem = dataclasses.replace(problem, store=store)
    call = Caller(problem.model, blocks.call_rows(problem))
    return blocks.evaluate(problem, plan, own, call, (_ANY,))
