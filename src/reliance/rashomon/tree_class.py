"""Sparse decision trees as a class: all good ones are listed, and how much each relies on a feature is exact."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.data.passed import LossLike, ModelLike
from reliance.losses.functions import Loss, resolve_all
from reliance.models.default_losses import default_of_list
from reliance.rashomon import tree_arborenum
from reliance.rashomon.members import Members
from reliance.rashomon.protocol import ClassData, Member, Range
from reliance.rashomon.tree_cuts import Cuts
from reliance.rashomon.tree_origins import Enumerated, Fitted, Search, Source
from reliance.rashomon.tree_sources import Trees

Floats: TypeAlias = NDArray[np.float64]
_ROUNDING = 1e-12  # relative: trees of equal objective have sums in another order


@dataclass(frozen=True, eq=False)
class TreeClass:
    """Sparse decision trees: the range over all good ones is exact, and each of them is listed.

    All trees up to a depth over given cut points are searched, with the best output in each leaf. A tree is good if its
    mean loss plus ``penalty`` times its number of leaves is at most the bound; these sums are what ``reference_risk``,
    ``bound`` and the risks of the result are. Reliance is that of the loss alone.

    Parameters
    ----------
    depth : int
        Of the trees: tests on the longest path.
    penalty : float
        Added to the mean loss for each leaf. Larger ones make the set smaller and the search faster.
    cuts : int, mapping, or a fitted ensemble
        How many points a column, at quantiles; or ``{column: points}``, columns by name or number, ``x <= point`` goes
        left; or a fitted ensemble of scikit-learn, LightGBM, XGBoost or CatBoost, whose splits are the points.
    loss : {"zero_one", "log_loss", "squared_error"}
        Leaves output the most frequent label, the shares of the labels 0, ..., K - 1, or the mean.
    most : int
        Trees that may be listed; more are an error.

    Notes
    -----
    Trees that test the same in another order are different trees, as in TreeFARMS and ArborEnum. The search is dynamic
    programming over sets of rows with bounds: right for some dozen cut points and a depth of 3 or 4. For more,
    enumerate with ArborEnum and pass what it has found to `from_trees`.

    A leaf's switched loss is the sum of the losses of the rows that pass its tests on other columns, times the number
    of donors that pass its tests on the feature, less the rows that would borrow from themselves. Leaves that recur
    in many trees are counted once.

    References
    ----------
    Xin, R., Zhong, C., Chen, Z., Takagi, T., Seltzer, M., Rudin, C. (2022). Exploring the whole Rashomon set of sparse
    decision trees. NeurIPS.
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 2, size=(300, 4)).astype(float)
    >>> y = (X[:, 0] + X[:, 1] > 1).astype(int) ^ (rng.random(300) < 0.1)
    >>> result = rl.model_class_reliance(rl.TreeClass(depth=2), X, y, epsilon=0.1)
    >>> bool(result.lower[0] > 2), bool(result.upper[3] < 1.3), len(result.members.names)
    (True, True, 8)
    """

    depth: int = 3
    penalty: float = 0.01
    cuts: Cuts = 4
    loss: str = "zero_one"
    most: int = 1_000_000
    _source: Source = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("depth", "most"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={shown(value)}: pass an integer of at least 1")
        _check_penalty(self.penalty)
        if not isinstance(self.loss, str):
            raise TypeError(f"loss={shown(self.loss)}: pass a name; TreeClass.from_trees takes functions, too")
        found = Search(_row_loss(self.loss), int(self.depth), self.cuts, int(self.most))
        object.__setattr__(self, "_source", found)  # it is frozen

    @classmethod
    def from_trees(
        cls,
        trees: Iterable[ModelLike] | Mapping[str, ModelLike] | object,
        *,
        loss: LossLike | None = None,
        penalty: float = 0.0,
    ) -> TreeClass:
        """Trees that are fitted already: the class is the list.

        Parameters
        ----------
        trees : list, mapping from names, or arborenum.ArborEnum
            Single fitted trees of scikit-learn, or a fitted ``ArborEnum``, whose trees are all taken.
        loss : str or callable, optional
            Any loss of single rows. By default that of `FiniteClass`; zero-one for ``ArborEnum``.
        penalty : float
            Added to the mean loss for each leaf.

        Returns
        -------
        TreeClass

        Examples
        --------
        >>> import numpy as np, reliance as rl
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=200)
        >>> trees = [DecisionTreeRegressor(max_depth=d, random_state=0).fit(X, y) for d in (2, 3, 4)]
        >>> found = rl.model_class_reliance(rl.TreeClass.from_trees(trees), X, y, epsilon=5.0)
        >>> found.members.values.shape
        (3, 3)
        """
        _check_penalty(penalty)
        source: Source
        if tree_arborenum.is_arborenum(trees):
            source = Enumerated(trees, _row_loss("zero_one" if loss is None else loss))
        else:
            named = _named(trees)
            function = default_of_list(named.values()) if loss is None else _row_loss(loss)
            source = Fitted(named, function)
        made = cls(penalty=penalty)
        for name, value in (("loss", source.loss.name), ("_source", source)):  # it is frozen
            object.__setattr__(made, name, value)
        return made

    def best(self, data: ClassData) -> Member:
        trees = self._trees(data, None)
        return trees.member(int(np.argmin(trees.objectives)))

    def contains(self, data: ClassData, model: object) -> Member:
        """A tree of the list, by itself or by its name."""
        return self._trees(data, None).member(self.position(model))

    def position(self, model: object) -> int:
        """Which tree of the list a reference is."""
        return self._source.position(model)

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        """The least and the largest reliance among the good trees: exact."""
        trees = self._trees(data, bound)
        members = self.members(data, bound, features, compare, conditional)
        found = []
        for j in range(len(features)):
            known = np.where(members.inside, members.values[:, j], np.nan)
            least, most = int(np.nanargmin(known)), int(np.nanargmax(known))
            low, high = float(known[least]), float(known[most])
            found.append(Range(low, high, trees.member(least), trees.member(most), low, high))
            advance(1)
        return found

    def members(
        self, data: ClassData, bound: float, features: tuple[Feature, ...], compare: str, conditional: bool
    ) -> Members:
        """Each good tree's objective and reliance; of a list also the trees that are not good, without reliance."""
        if conditional:
            raise ValueError(
                "TreeClass has no conditional reliance: what is predicted of a feature plus another row's residual may "
                "cross any cut; use FiniteClass with the extremal trees of a result"
            )
        trees = self._trees(data, bound)
        inside = trees.objectives <= bound + _ROUNDING * abs(bound)
        if not inside.any():
            raise ValueError(
                f"no tree of the list has loss plus penalty of at most {bound:g}, the least is "
                f"{trees.objectives.min():g}: the Rashomon set is empty; pass a larger epsilon"
            )
        values = np.where(inside[:, None], trees.reliances(features, compare, inside), np.nan)
        return Members(trees.names, trees.objectives, inside, values)

    def _trees(self, data: ClassData, bound: float | None) -> _Judged:
        """The trees with at most that objective, or the best one; measured once."""
        known = _known.setdefault(data, {}).setdefault(self, {})
        key = bound if self._source.bounded else None
        if key not in known:
            names, trees = self._source.trees(data, key, self.penalty)
            known[key] = _Judged(names, trees, self.penalty)
        return known[key]


def _check_penalty(penalty: object) -> None:
    if isinstance(penalty, bool) or not isinstance(penalty, int | float | np.number) or not 0 <= penalty < np.inf:
        raise ValueError(f"penalty={shown(penalty)}: pass a number of at least 0, added to the mean loss for each leaf")


def _row_loss(loss: LossLike) -> Loss:
    function, *more = resolve_all(loss)
    if more or not isinstance(function, Loss):
        raise ValueError(f"loss={shown(loss)}: a class is judged by one loss of single rows")
    return function


def _named(trees: object) -> dict[str, ModelLike]:
    if isinstance(trees, Mapping):
        named = dict(trees)
    elif isinstance(trees, Iterable) and not isinstance(trees, str) and not hasattr(trees, "predict"):
        named = {f"tree {k}": tree for k, tree in enumerate(trees)}
    else:
        raise TypeError(f"trees={shown(trees)}: pass a list of fitted trees, a mapping from names, or an ArborEnum")
    if not named:
        raise ValueError("trees is empty: pass at least one fitted tree")
    return named


@dataclass(frozen=True, eq=False)
class _Judged:
    """Trees on given rows, with their losses."""

    names: tuple[str, ...]
    trees: Trees
    penalty: float

    @cached_property
    def own(self) -> Floats:
        """(L,): the sum of the losses of the rows in each leaf."""
        return self.trees.paths.leaf_losses(self.trees.losses)

    @cached_property
    def risks(self) -> Floats:
        """(M,): mean losses."""
        return self.trees.paths.risks(self.own)

    @property
    def objectives(self) -> Floats:
        """(M,): mean losses plus penalties."""
        return self.risks + self.penalty * self.trees.leaves

    def member(self, k: int) -> Member:
        return Member(self.trees.model(k), float(self.objectives[k]))

    def reliances(self, features: tuple[Feature, ...], compare: str, inside: NDArray[np.bool_]) -> Floats:
        """(M, p); those of trees that are not inside are not looked at."""
        excess = self.trees.paths.excesses(features, self.own, self.trees.losses)
        if compare == "difference":
            return excess
        zero = np.flatnonzero(inside & (self.risks <= 0.0))
        if zero.size:
            raise ValueError(
                f"compare='ratio' divides by the loss, which is {self.risks[zero[0]]:g} for "
                f"{shown(self.names[zero[0]])}, not above 0: pass compare='difference'"
            )
        risks = np.where(self.risks > 0.0, self.risks, np.nan)[:, None]
        return 1.0 + excess / risks


_known: weakref.WeakKeyDictionary[ClassData, dict[TreeClass, dict[float | None, _Judged]]] = weakref.WeakKeyDictionary()
