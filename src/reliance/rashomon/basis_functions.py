"""Functions of a row that models are linear in: steps of columns, the trees of an ensemble, a network's last layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reliance._core.arrays import device, from_host, namespace, to_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.models import modules, tree_readers
from reliance.models.ensembles import Ensemble, Finish
from reliance.models.libraries import TorchModule
from reliance.samplers.draws import take_columns

Columns = list[tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Steps:
    """``x[columns] > points``, as 0 and 1."""

    columns: tuple[int, ...]
    points: tuple[float, ...]

    def __call__(self, X: Array) -> Array:
        xp = namespace(X)
        own = take_columns(X, self.columns)
        return xp.astype(own > from_host(np.asarray(self.points), xp, device(X), X.dtype), X.dtype)


def steps(cuts: Mapping[int, Sequence[float]]) -> tuple[Steps, Columns]:
    pairs = [(int(column), float(point)) for column, points in cuts.items() for point in sorted(set(points))]
    if not pairs:
        raise ValueError(f"cuts={shown(cuts)} has no points: pass a mapping from numbers of columns to points")
    columns, points = zip(*pairs, strict=True)
    return Steps(columns, points), [(column,) for column in columns]


@dataclass(frozen=True, eq=False)
class TreeOutputs:
    """What each tree of an ensemble adds, side by side."""

    trees: tuple[Ensemble, ...]

    def __call__(self, X: Array) -> Array:
        return namespace(X).stack([tree(X) for tree in self.trees], axis=1)


def trees(forest: object) -> tuple[TreeOutputs, Columns]:
    read = tree_readers.read(forest, "predict")
    if read is None or read.value.shape[1] != 1 or read.finish.exact or read.finish.link != "identity":
        raise TypeError(
            f"forest={shown(forest)}: pass a fitted regressor of scikit-learn, LightGBM, XGBoost or CatBoost with one "
            "output, whose trees are added up"
        )
    plain = replace(read, offset=np.zeros(1), finish=Finish(scale=read.finish.scale))
    ends = np.append(read.roots[1:], len(read.feature))
    columns = []
    for root, end in zip(read.roots, ends, strict=True):
        used = read.feature[root:end]
        columns.append(tuple(np.unique(used[used >= 0]).tolist()))
    return TreeOutputs(tuple(replace(plain, roots=read.roots[k : k + 1]) for k in range(len(ends)))), columns


@dataclass(frozen=True, eq=False)
class LastLayer:
    """What enters the last linear layer of a torch module, computed in its evaluation mode."""

    module: TorchModule
    layer: TorchModule

    @classmethod
    def of(cls, module: object) -> LastLayer:
        if not modules.is_torch_module(module):
            raise TypeError(f"module={shown(module)}: pass a torch.nn.Module")
        linear = [part for part in module.modules() if type(part).__name__ == "Linear"]
        if not linear:
            raise TypeError(f"module is a {type(module).__name__} without a torch.nn.Linear: pass a basis of your own")
        return cls(module, linear[-1])

    def __call__(self, X: Array) -> Array:
        from reliance.rashomon.torch_framework import seen_by

        entered, left, answer = seen_by(self.module, self.layer, X)
        if answer.shape != left.shape or not np.array_equal(to_host(answer), to_host(left)):
            raise ValueError("the module's output is not that of its last linear layer: pass a basis of your own")
        return entered
