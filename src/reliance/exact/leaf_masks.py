"""Trees of up to 64 leaves: which leaves stay open, as bits of one integer.

A leaf is open for a column if the row's value goes the leaf's way at every split on that column. The AND over the
columns leaves one leaf, the row's own; the AND over all columns but j leaves those that the row can reach when feature
j is free, and one more AND with the mask of a cell of j says where a donor of that cell sends it (as in QuickScorer,
Lucchese et al. 2015). Prefix and suffix ANDs give "all but j" for all columns of a tree at once, so one pass over a
tree serves all its features.

Along the cells of a column a tree's value changes only at its own splits. So a tree adds its changes, and one running
sum over the cells gives the whole ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, loops
from reliance._core.kinds import Array, Device, DType, HostArray, Namespace
from reliance._core.streams import Indices
from reliance.exact.cells import Cells
from reliance.models.ensembles import Ensemble

Masks: TypeAlias = NDArray[np.uint64]
# The arrays of a tree: of the host while it is made, then of the device.
Kind = TypeVar("Kind", bound=Array)
# Multiplying 2^k by one of these leaves another number in the top bits for each k (de Bruijn sequences).
DE_BRUIJN = {32: 0x077CB531, 64: 0x03F79D71B4CB0A89}
_SHIFT = {32: 27, 64: 58}
_ALL = np.uint64(2**64 - 1)


class Skeleton(NamedTuple):
    """What the flat arrays do not say at once: the tree of each node, the nodes level by level, the leaves per tree."""

    tree: Indices
    levels: list[Indices]
    leaves: Indices


def skeleton(ensemble: Ensemble) -> Skeleton:
    tree = np.zeros(len(ensemble.feature), dtype=np.int64)
    tree[ensemble.roots] = np.arange(len(ensemble.roots))
    levels, nodes = [], ensemble.roots
    while len(nodes):
        levels.append(nodes)
        inner = nodes[ensemble.feature[nodes] >= 0]
        below = np.concatenate([ensemble.left[inner], ensemble.right[inner]])
        tree[below] = np.concatenate([tree[inner]] * 2)
        nodes = below
    every = np.concatenate(levels)
    leaves = np.bincount(tree[every[ensemble.feature[every] < 0]], minlength=len(ensemble.roots))
    return Skeleton(tree, levels, leaves)


def leaf_bits(ensemble: Ensemble, bones: Skeleton) -> tuple[Masks, Indices]:
    """For each node the leaves below it, as bits; and for each leaf the number of its bit."""
    every = np.concatenate(bones.levels)
    leaves = every[ensemble.feature[every] < 0]
    leaves = leaves[np.argsort(bones.tree[leaves], kind="stable")]
    first = np.cumsum(bones.leaves) - bones.leaves
    number = np.zeros(len(ensemble.feature), dtype=np.int64)
    number[leaves] = np.arange(len(leaves)) - first[bones.tree[leaves]]
    below = np.zeros(len(ensemble.feature), dtype=np.uint64)
    below[leaves] = np.uint64(1) << number[leaves].astype(np.uint64)
    for nodes in reversed(bones.levels):
        inner = nodes[ensemble.feature[nodes] >= 0]
        below[inner] = below[ensemble.left[inner]] | below[ensemble.right[inner]]
    return below, number


def open_leaves(ensemble: Ensemble, below: Masks, root: int, splits: Indices, cells: Cells) -> Masks:
    """``(m,)``: the leaves of a tree that each cell leaves open, from the tree's splits on the cells' columns."""
    shut = np.zeros(cells.number, dtype=np.uint64)
    for column, values in zip(cells.columns, cells.value.T, strict=True):
        nodes = splits[ensemble.feature[splits] == column]
        left = ensemble.decide(nodes, values)
        sides = np.where(left, below[ensemble.right[nodes], None], below[ensemble.left[nodes], None])
        shut |= np.bitwise_or.reduce(sides, axis=0)
    return np.asarray(below[root] & ~shut)


class Tree(NamedTuple, Generic[Kind]):
    """One tree, ready for `add_tree`: arrays of the host while it is made, then of the device.

    It has F columns (one of them may be a group of columns), C cells of those that are measured (column after column;
    each is a run of the column's cells that the tree does not tell apart), and adds to K of the outputs.

    Attributes
    ----------
    columns : integers (F,)
        As positions among the ensemble's columns.
    table, offset : masks (sum of the columns' cells,), integers (F, 1)
        The mask of each cell of each column; where a column's masks begin.
    cell_mask, cell_column : masks (C, 1), integers (C,)
    values : arrays (K, 32 or 64)
        Of its leaves, in the order of `leaf_index`.
    previous : integers (C,)
        The cell before, plus one; 0 for the first cell of a column, before which stands the row's own leaf.
    own, slots : integers (K,), (K C,)
        To which lines of the common table its own value and its changes are added.
    """

    columns: Kind
    table: Kind
    offset: Kind
    cell_mask: Kind
    cell_column: Kind
    values: Kind
    previous: Kind
    own: Kind
    slots: Kind


def leaf_index(mask: Array, size: int) -> Array:
    """The place of the one bit that is set, in the order of the de Bruijn sequence of that size."""
    xp = arrays.namespace(mask)
    top = (mask * DE_BRUIJN[size]) >> _SHIFT[size]
    if not xp.isdtype(mask.dtype, "unsigned integer"):  # a negative number keeps its sign when shifted
        top = top & (size - 1)
    return xp.astype(top, arrays.index_dtype(xp), copy=False)


def add_tree(table: Array, codes: Array, tree: Tree[Array]) -> Array:
    """Add a tree to the common table ``(lines, b)``: the rows' own values, and the changes where its cells begin.

    ``codes (columns, b)`` are the cells of the rows.
    """
    xp = arrays.namespace(codes)
    b = codes.shape[1]
    outputs, size = tree.values.shape
    place = xp.take(codes, tree.columns, axis=0) + tree.offset
    masks = xp.reshape(xp.take(tree.table, xp.reshape(place, (-1,))), place.shape)
    others, own = all_but_one(masks)
    reached = xp.take(others, tree.cell_column, axis=0) & tree.cell_mask
    index = xp.reshape(leaf_index(xp.concat([own[None, :], reached]), size), (-1,))
    values = xp.reshape(xp.take(tree.values, index, axis=1), (outputs, -1, b))
    changes = values[:, 1:, :] - xp.take(values, tree.previous, axis=1)
    table = arrays.add_rows(table, tree.own, values[:, 0, :])
    return arrays.add_rows(table, tree.slots, xp.reshape(changes, (-1, b)))


def all_but_one(masks: Array) -> tuple[Array, Array]:
    """From masks (F, b) the AND of all others (F, b), and of all (b,)."""
    xp = arrays.namespace(masks)
    last = masks.shape[0] - 1
    after = [masks[last, :]]
    for k in range(last - 1, -1, -1):
        after.append(masks[k, :] & after[-1])
    after.reverse()
    if last == 0:
        return ~xp.zeros_like(masks), after[0]
    before, others = masks[0, :], [after[1]]
    for k in range(1, last):
        others.append(before & after[k + 1])
        before = before & masks[k, :]
    return xp.stack([*others, before]), after[0]


def running_sum(x: Array) -> Array:
    """Cumulative sums of ``x (K, m, b)`` along its second axis."""
    if not isinstance(x, np.ndarray) or x.shape[1] < 4:
        return arrays.namespace(x).cumulative_sum(x, axis=1)
    # NumPy adds along an inner axis one number at a time. In groups of lines, all groups at once, it is thrice as fast.
    outputs, m, b = x.shape
    size = round(m**0.5)
    whole = m - m % size
    total = np.empty_like(x)
    old, new = (a[:, :whole].reshape(outputs, -1, size, b) for a in (x, total))
    new[:, :, 0] = old[:, :, 0]
    for line in range(1, size):
        np.add(new[:, :, line - 1], old[:, :, line], out=new[:, :, line])
    for group in range(1, whole // size):
        new[:, group] += new[:, group - 1, -1:]
    for line in range(whole, m):
        np.add(total[:, line - 1], x[:, line], out=total[:, line])
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Tables, made on the host


@dataclass(frozen=True)
class MaskTables:
    """The trees of an ensemble on a device.

    The common table has a line for each output and cell of the measured columns, output after output, a column's cells
    beginning at ``start``; then one for each output's own value, one for what padding adds, and one that stays 0.
    """

    trees: list[Tree[Array]]
    start: tuple[int, ...]
    outputs: int
    widest: int
    nbytes: int

    @property
    def cells(self) -> int:
        return self.start[-1]

    @property
    def lines(self) -> int:
        return self.outputs * (self.cells + 1) + 2


def fold_trees(table: Array, codes: Array, trees: list[Tree[Array]]) -> Array:
    """The common table (lines, b), zero before, of the rows with these cells (columns, b)."""
    return loops.fold(lambda carry, tree: add_tree(carry, codes, tree), table, trees)


def mask_tables(
    ensemble: Ensemble,
    bones: Skeleton,
    cells: list[Cells],
    measured: list[int],
    xp: Namespace,
    dev: Device,
    dtype: DType,
) -> MaskTables:
    """The tables of an ensemble whose columns have these cells, some measured; leaf values in ``dtype``."""
    size = arrays.mask_size(xp, int(bones.leaves.max()))
    assert size is not None
    outputs = ensemble.value.shape[1]
    start = np.cumsum([0, *(cells[k].number for k in measured)])
    begin = {k: int(first) for k, first in zip(measured, start, strict=False)}
    trees = _host_trees(ensemble, bones, cells, begin, int(start[-1]), size)
    widest = max((len(tree.slots) for tree in trees), default=1)
    nbytes = sum(array.nbytes for tree in trees for array in tree)
    if not arrays.is_mutable(xp) and trees:
        trees = _padded(trees, outputs * (int(start[-1]) + 1))

    def upload(name: str, value: HostArray) -> Array:
        if name in ("table", "cell_mask"):
            return arrays.from_masks(value, xp, dev, size)
        return arrays.from_host(value, xp, dev, dtype if name == "values" else arrays.index_dtype(xp))

    uploaded: list[Tree[Array]] = [
        Tree(*(upload(name, value) for name, value in tree._asdict().items())) for tree in trees
    ]
    return MaskTables(loops.stacked(uploaded), tuple(int(s) for s in start), outputs, widest, nbytes)


def _host_trees(
    ensemble: Ensemble, bones: Skeleton, cells: list[Cells], begin: dict[int, int], total: int, size: int
) -> list[Tree[HostArray]]:
    below, number = leaf_bits(ensemble, bones)
    every = np.concatenate(bones.levels)
    every = every[np.argsort(bones.tree[every], kind="stable")]
    found = []
    for nodes in np.split(every, np.flatnonzero(np.diff(bones.tree[every])) + 1):
        splits, leaves = nodes[ensemble.feature[nodes] >= 0], nodes[ensemble.feature[nodes] < 0]
        added = np.flatnonzero(np.any(ensemble.value[leaves] != 0.0, axis=0))
        if not len(splits) or not len(added):
            continue
        tree, slots = _columns_of(ensemble, below, int(nodes[0]), splits, cells, begin)
        values = np.zeros((len(added), size))
        hashed = [((DE_BRUIJN[size] << bit) % 2**size) >> _SHIFT[size] for bit in number[leaves].tolist()]
        values[:, hashed] = ensemble.value[np.ix_(leaves, added)].T
        own = ensemble.value.shape[1] * total + added
        lines = (added[:, None] * total + slots).reshape(-1)
        found.append(tree._replace(values=values, own=own, slots=lines))
    return found


def _columns_of(
    ensemble: Ensemble, below: Masks, root: int, splits: Indices, cells: list[Cells], begin: dict[int, int]
) -> tuple[Tree[HostArray], Indices]:
    """A tree whose values are still to come, and the place of each of its cells among all measured ones."""
    here = set(ensemble.feature[splits].tolist())
    columns: list[int] = []
    owner: list[int] = []
    previous: list[int] = []
    slots: list[int] = []
    tables, masks = [], []
    for position, found in enumerate(cells):
        if here.isdisjoint(found.columns):
            continue
        table = open_leaves(ensemble, below, root, splits, found)
        if position in begin:
            begins = np.append(0, np.flatnonzero(table[1:] != table[:-1]) + 1)
            previous += [0, *range(len(slots) + 1, len(slots) + len(begins))]
            slots += (begin[position] + begins).tolist()
            masks.append(table[begins])
            owner += [len(columns)] * len(begins)
        columns.append(position)
        tables.append(table)
    lengths = np.asarray([len(table) for table in tables])
    tree = Tree(
        columns=np.asarray(columns),
        table=np.concatenate(tables),
        offset=(np.cumsum(lengths) - lengths)[:, None],
        cell_mask=np.concatenate([*masks, np.zeros(0, dtype=np.uint64)])[:, None],
        cell_column=np.asarray(owner, dtype=np.int64),
        values=np.zeros((0, 0)),
        previous=np.asarray(previous, dtype=np.int64),
        own=np.zeros(0, dtype=np.int64),
        slots=np.zeros(0, dtype=np.int64),
    )
    return tree, np.asarray(slots, dtype=np.int64)


def _padded(trees: list[Tree[HostArray]], nowhere: int) -> list[Tree[HostArray]]:
    """Trees of one shape: with columns whose masks are all ones, and cells and outputs that are added ``nowhere``."""
    width = {name: max(getattr(tree, name).shape[0] for tree in trees) for name in Tree._fields}
    longest = max(int(np.diff(np.append(tree.offset[:, 0], len(tree.table))).max()) for tree in trees)
    found = []
    for tree in trees:
        more = {name: width[name] - getattr(tree, name).shape[0] for name in Tree._fields}
        slots = np.full((width["values"], width["previous"]), nowhere)
        slots[: len(tree.values), : len(tree.previous)] = tree.slots.reshape(len(tree.values), -1)
        found.append(
            Tree(
                columns=np.pad(tree.columns, (0, more["columns"])),
                table=np.pad(tree.table, (0, width["table"] + longest - len(tree.table)), constant_values=_ALL),
                offset=np.pad(tree.offset, ((0, more["offset"]), (0, 0)), constant_values=len(tree.table)),
                cell_mask=np.pad(tree.cell_mask, ((0, more["cell_mask"]), (0, 0))),
                cell_column=np.pad(tree.cell_column, (0, more["cell_column"])),
                values=np.pad(tree.values, ((0, more["values"]), (0, 0))),
                previous=np.pad(tree.previous, (0, more["previous"])),
                own=np.pad(tree.own, (0, more["own"]), constant_values=nowhere),
                slots=slots.reshape(-1),
            )
        )
    return found
