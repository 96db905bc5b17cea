"""Members of a bag in the engine: rows as often as they borrow a feature, each answered by its own member."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Array, HostArray
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.blocks import Evaluated
from reliance.engine.evaluation import Evaluation, evaluating
from reliance.engine.problems import Problem
from reliance.engine.stores import ArrayStore
from reliance.models.calling import Model
from reliance.plans import Drawn, Users
from reliance.refit.bag_pairs import Pairs, Uses, find_uses, padded_columns
from reliance.refit.bag_trees import Words, differences, walk
from reliance.refit.bagged import Bag

Floats = NDArray[np.float64]
_BLOCK_ROWS = 16384
# The engine is told of one feature. Which columns each row borrows, its store knows.
_ANY = Feature("of any name", ())


@dataclass(frozen=True)
class Borrowers(ArrayStore):
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
        np.take(self.flat, self.pairs.row[pair], axis=0, out=np.asarray(own), mode="clip")
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
class Borrowed(Drawn):
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


class Measured(NamedTuple):
    """Some members: their pairs and base losses, which replacements can matter, and their changes of each loss."""

    pairs: Pairs
    base_losses: tuple[Floats, ...]
    uses: Uses
    changes: list[Floats]
    block: tuple[int, int]


def measured(problem: Problem, bag: Bag, table: HostArray, pairs: Pairs, features: tuple[Feature, ...]) -> Measured:
    """Some members on their out-of-bag rows."""
    answers, flips = _answers(bag, table, pairs)
    uses = find_uses(pairs, flips, table.shape[1] - 1, features)
    changes, block = [np.zeros(len(uses.pair)) for _ in problem.losses], (0, 0)
    # The pairs have their own weights, which the sums take.
    model = Model(bag.predict, bag.source, block_rows=_BLOCK_ROWS)
    asked = dataclasses.replace(problem, model=model, weights=None)
    with evaluating(_numbered(asked, pairs, answers), probed=False) as evaluation:
        for at in _runs(bag, uses, len(features)):
            run = _evaluated(evaluation, asked, table, pairs, uses.at(at), features)
            block = max(block, run.block)
            for change, moments in zip(changes, run.moments[_ANY.name], strict=True):
                change[at] = moments.row_sum
    return Measured(pairs, evaluation.base.host_losses, uses, changes, block)


def _answers(bag: Bag, table: HostArray, pairs: Pairs) -> tuple[HostArray, Words]:
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


def _numbered(problem: Problem, pairs: Pairs, answers: HostArray) -> Problem:
    """The pairs as rows of a model that reads the members' answers by their numbers: they have answered already.

    Its base pass has the engine's checks, and the losses.
    """
    return dataclasses.replace(
        problem,
        model=Model(lambda block: answers[block[:, 0].astype(np.int64)], problem.model.source, block_rows=_BLOCK_ROWS),
        store=ArrayStore(np.arange(len(pairs.row), dtype=np.float64)[:, None], (1,)),
        targets=tuple(None if target is None else target[pairs.row] for target in problem.targets),
    )


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
    evaluation: Evaluation,
    problem: Problem,
    table: HostArray,
    pairs: Pairs,
    uses: Uses,
    features: tuple[Feature, ...],
) -> Evaluated:
    """The changes of loss of some uses, by the engine."""
    if len(uses.pair) == 1:  # it lends among at least two rows
        run = _evaluated(evaluation, problem, table, pairs, uses.at(np.zeros(2, dtype=np.int64)), features)
        first = tuple(dataclasses.replace(m, row_sum=m.row_sum[:1]) for m in run.moments[_ANY.name])
        return Evaluated({_ANY.name: first}, run.block)
    base = evaluation.base
    own = dataclasses.replace(
        base,
        predictions=base.predictions[uses.pair],
        slack=base.slack[uses.pair],
        targets=tuple(target[uses.pair] for target in base.targets),
        losses=tuple(losses[uses.pair] for losses in base.losses),
    )
    store = Borrowers(table, (table.shape[1],), pairs, uses, padded_columns(features))
    borrowing = dataclasses.replace(problem, store=store)
    return evaluation.on(borrowing, own).measure(Borrowed(pairs.donor[uses.pair, uses.draw]), (_ANY,))
