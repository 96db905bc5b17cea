"""Models linear in given functions of the rows: additive models, a network's last layer, the trees of a forest."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reliance._core.arrays import namespace, to_host
from reliance._core.checks import check_choice
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.models import calling
from reliance.rashomon import basis_functions, basis_libraries, basis_reads
from reliance.rashomon.ball import Ball
from reliance.rashomon.convex import ConvexLinearClass
from reliance.rashomon.ellipsoid import Ellipsoid, Point, range_of
from reliance.rashomon.kernel_pairs import Switch
from reliance.rashomon.kernel_sums import own_products, pair_products
from reliance.rashomon.linear import LeastSquaresClass
from reliance.rashomon.moments import check_intercept, fixed_intercept, row_moments
from reliance.rashomon.protocol import ClassData, Member, ModelClass, Range
from reliance.rashomon.switched_ends import Functions
from reliance.rashomon.trust_region import Quadratic
from reliance.samplers.draws import Host, narrow, upload, wide

# (n, P) -> (n, K), in the namespace of the rows.
Basis: TypeAlias = Callable[[Array], Array]
_LOSSES = ("squared_error", "logistic", "hinge")


@dataclass(frozen=True, eq=False)
class BasisModel:
    """``f(x) = intercept + basis(x) @ coef``.

    Examples
    --------
    >>> model = BasisModel(lambda X: np.stack([X[:, 0], X[:, 0] ** 2], axis=1), np.array([1.0, 2.0]), 3.0)
    >>> model(np.array([[2.0]])).tolist()
    [13.0]
    """

    basis: Basis
    coef: Host
    intercept: float

    def __call__(self, X: Array) -> Array:
        values = wide(self.basis(X))
        return narrow(values @ upload(self.coef, values) + self.intercept, X)


@dataclass(frozen=True, eq=False)
class BasisClass:
    r"""Models that are linear in their parameters over given functions of a row.

    .. math:: f(x) = \beta_0 + \sum_k \beta_k z_k(x)

    Parameters
    ----------
    basis : callable
        ``(n, P) -> (n, K)``: the functions, in the namespace of the rows.
    columns : sequence of K sequences of int, optional
        The columns of X that each function reads. A feature whose functions read nothing else is exchanged without
        looking at pairs. This is checked on replaced rows. None: every function may read every column.
    loss : {"squared_error", "logistic", "hinge"}
        Labels are numbers, {0, 1}, or {-1, 1}.
    ridge : float, optional
        The radius of a ball of the coefficients. Functions that are dependent need one.
    intercept : bool or float
        Whether models have a free intercept, or the one that all of them have (False: 0).

    Notes
    -----
    Where a feature's functions read no other column, the range is that of `LinearClass` on the functions as columns,
    with theirs as a group: exact under squared error. Where a function reads the feature and other columns, products of
    the functions are summed over all n(n-1) pairs, O(n^2 K^2), and the ends are exact, with ``ridge`` certified, too.
    That is for squared error; the other losses need functions that do not mix a feature with others.

    Conditional reliance exchanges what the other columns of X do not predict of a feature, as for all classes; it
    always takes all pairs.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 6.

    Examples
    --------
    >>> import reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = X[:, 0] ** 2 + rng.normal(size=300)
    >>> curves = lambda X: np.concatenate([X, X**2], axis=1)
    >>> kind = rl.BasisClass(curves, columns=[(0,), (1,), (0,), (1,)])
    >>> found = rl.model_class_reliance(kind, X, y, epsilon=0.05)
    >>> bool(found.lower[0] > 2), bool(found.upper[1] < 1.3)
    (True, True)
    """

    basis: Basis
    columns: Sequence[Sequence[int]] | None = None
    loss: str = "squared_error"
    ridge: float | None = None
    intercept: bool | float = True

    def __post_init__(self) -> None:
        check_choice(self.loss, _LOSSES, "loss")
        check_intercept(self.intercept)
        if not callable(self.basis):
            raise TypeError(f"basis={shown(self.basis)}: pass a function of rows (n, P) that returns (n, K)")
        if self.loss != "squared_error" and self.intercept is not True:
            raise ValueError(f"loss={shown(self.loss)} has a free intercept always: pass intercept=True")
        radius = self.ridge
        if radius is not None and (isinstance(radius, bool) or not isinstance(radius, int | float) or not radius > 0):
            raise ValueError(f"ridge={shown(radius)}: pass the radius of the ball, a positive number, or None")

    @classmethod
    def from_steps(
        cls,
        cuts: Mapping[int, Sequence[float]],
        *,
        loss: str = "squared_error",
        ridge: float | None = None,
        intercept: bool | float = True,
    ) -> BasisClass:
        """Additive models of steps at given points of columns: what a boosting machine of single columns spans.

        Parameters
        ----------
        cuts : mapping
            ``{column number: points}``; one function ``x > point`` for each.
        loss : {"squared_error", "logistic", "hinge"}
        ridge : float, optional
            The radius of the ball of coefficients.
        intercept : bool or float
            As in the class.

        Returns
        -------
        BasisClass
        """
        basis, columns = basis_functions.steps(cuts)
        return cls(basis, columns, loss, ridge, intercept)

    @classmethod
    def from_forest(
        cls,
        forest: object,
        *,
        loss: str = "squared_error",
        ridge: float | None = None,
        intercept: bool | float = True,
    ) -> BasisClass:
        """The trees of a fitted ensemble with free weights.

        With all coefficients 1 and its own offset as intercept the model is the ensemble.

        Parameters
        ----------
        forest : estimator
            A regressor of scikit-learn, LightGBM, XGBoost or CatBoost whose trees are added up.
        loss : {"squared_error", "logistic", "hinge"}
        ridge : float, optional
            The radius of the ball of coefficients.
        intercept : bool or float
            As in the class.

        Returns
        -------
        BasisClass
        """
        basis, columns = basis_functions.trees(forest)
        return cls(basis, columns, loss, ridge, intercept)

    @classmethod
    def from_last_layer(
        cls,
        module: object,
        *,
        loss: str = "squared_error",
        ridge: float | None = None,
        intercept: bool | float = True,
    ) -> BasisClass:
        """What enters the last linear layer of a network, with free weights; everything before it is frozen.

        Parameters
        ----------
        module : torch.nn.Module
            Whose output is that of its last ``torch.nn.Linear``.
        loss : {"squared_error", "logistic", "hinge"}
        ridge : float, optional
            The radius of the ball of coefficients. Hidden units are often dependent, and then need one.
        intercept : bool or float
            As in the class.

        Returns
        -------
        BasisClass
        """
        return cls(basis_functions.LastLayer.of(module), None, loss, ridge, intercept)

    @classmethod
    def from_ebm(
        cls,
        ebm: object,
        *,
        functions: str = "bins",
        loss: str = "squared_error",
        ridge: float | None = None,
        intercept: bool | float = True,
    ) -> BasisClass:
        """What a fitted explainable boosting machine spans: other heights of its bins, or other weights of its terms.

        Parameters
        ----------
        ebm : estimator
            An ``ExplainableBoostingRegressor`` or binary ``ExplainableBoostingClassifier`` of ``interpret``, whose
            columns are numbers.
        functions : {"bins", "terms"}
            A step at each cut point, and products of steps for terms of several columns; or each term as it was
            fitted, so that with all coefficients 1 the model is the machine's score.
        loss : {"squared_error", "logistic", "hinge"}
        ridge : float, optional
            The radius of the ball of coefficients. Bins without rows need one.
        intercept : bool or float
            As in the class.

        Returns
        -------
        BasisClass
        """
        basis, columns = basis_libraries.boosting_machine(ebm, functions)
        return cls(basis, columns, loss, ridge, intercept)

    @classmethod
    def from_gam(
        cls,
        gam: object,
        *,
        loss: str = "squared_error",
        ridge: float | None = None,
        intercept: bool | float = True,
    ) -> BasisClass:
        """What a fitted generalised additive model spans: its splines and linear terms with free coefficients.

        Parameters
        ----------
        gam : estimator
            A fitted model of ``pygam``.
        loss : {"squared_error", "logistic", "hinge"}
        ridge : float, optional
            The radius of the ball of coefficients. The splines of a column add up to 1, so that with a free intercept
            they need one.
        intercept : bool or float
            As in the class.

        Returns
        -------
        BasisClass
        """
        basis, columns = basis_libraries.additive_model(gam)
        return cls(basis, columns, loss, ridge, intercept)

    def best(self, data: ClassData) -> Member:
        return self._lifted(self._solver.best(self._expanded(data)))

    def contains(self, data: ClassData, model: object) -> Member:
        """A ``BasisModel`` over the same functions."""
        if not isinstance(model, BasisModel) or model.basis is not self.basis:
            raise TypeError(
                f"reference={calling.name_of(model)} is not known to be in the class: pass a model of a result over "
                "the same BasisClass, or None for the best"
            )
        within = self._expanded(data)
        return self._lifted(
            self._solver.contains(within, calling.Linear(upload(model.coef, within.X), model.intercept))
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
        within = self._expanded(data)
        reads = [basis_reads.reads(self.columns, self._values, data, within, feature) for feature in features]
        alone = [bool(own) and not mixed and not conditional for own, mixed in reads]
        # Together: a search begins where that of another feature has ended.
        groups = tuple(Feature(features[k].name, reads[k][0]) for k in np.flatnonzero(alone))
        separate = iter(self._solver.ranges(within, bound, groups, compare, False, advance))
        found = []
        for k, feature in enumerate(features):
            if alone[k]:
                found.append(self._lifted_range(next(separate)))
                continue
            if reads[k][0]:
                found.append(self._by_pairs(data, within, bound, feature, compare, conditional))
            else:
                found.append(self._unread(within, compare))
            advance(1)
        return found

    # ----------------------------------------------------------------------------------------------------------------

    @property
    def _solver(self) -> ModelClass:
        radius = None if self.ridge is None else float(self.ridge)
        if self.loss != "squared_error":
            return ConvexLinearClass(self.loss, radius)
        return LeastSquaresClass(radius, self.intercept)

    def _expanded(self, data: ClassData) -> ClassData:
        """The functions as columns; made once for each data."""
        known = _known.setdefault(data, {})
        if self not in known:
            values = self._values(data.X)
            if not bool(np.isfinite(to_host(namespace(values).sum(values)))):
                raise ValueError("basis returned NaN or infinite values for the rows of X")
            if self.columns is not None:
                basis_reads.check_columns(self.columns, int(data.X.shape[1]), int(values.shape[1]))
            known[self] = ClassData(values, data.y, data.key, data.memory)
        return known[self]

    def _values(self, X: Array) -> Array:
        values = self.basis(X)
        if getattr(values, "ndim", 0) != 2 or values.shape[0] != X.shape[0]:
            shape = tuple(getattr(values, "shape", ()))
            raise ValueError(f"basis returned shape {shape} for {X.shape[0]} rows: return (n, K), a column a function")
        return values

    def _unread(self, within: ClassData, compare: str) -> Range:
        """No model relies on what no function reads."""
        best, value = self._lifted(self._solver.best(within)), float(compare == "ratio")
        return Range(value, value, best, best, value, value)

    def _by_pairs(
        self, data: ClassData, within: ClassData, bound: float, feature: Feature, compare: str, conditional: bool
    ) -> Range:
        """Products of the functions summed over all pairs."""
        if self.loss != "squared_error":
            raise ValueError(
                f"loss={shown(self.loss)} needs functions that do not mix {shown(feature.name)} with other columns, "
                "named by columns=, and no conditional reliance: use loss='squared_error'"
            )
        moments = row_moments(within).about(self.intercept)
        shape = Ellipsoid(moments, self.intercept is True)
        ball = None if self.ridge is None else Ball(shape, float(self.ridge))
        functions = Functions(shape, ball, fixed_intercept(self.intercept))
        X = wide(data.X)
        own, y = upload(within.X, X), upload(to_host(data.y).astype(np.float64), X)
        total = pair_products(
            lambda rows, _: upload(self._values(narrow(rows, data.X)), X),
            Switch.of(X, feature.columns, conditional),
            X[:1, :],
            np.eye(int(own.shape[1])),
            y,
            memory=data.memory,
            own=own_products(own, y),
        )
        low, high = functions.ends(Quadratic.of_products(total), bound, compare)

        def member(point: Point, risk: float) -> Member:
            mu, *coef = functions.full(point).tolist()
            return Member(BasisModel(self.basis, np.asarray(coef), float(mu)), risk)

        return range_of(low, high, member)

    def _lifted(self, member: Member) -> Member:
        """A linear model of the functions as a model of rows."""
        form = calling.linear_form(member.model)
        assert form is not None
        return Member(BasisModel(self.basis, *form), member.risk)

    def _lifted_range(self, found: Range) -> Range:
        ends = self._lifted(found.least), self._lifted(found.most)
        achieved = (found.achieved_lower, found.achieved_upper)
        return Range(found.lower, found.upper, *ends, *achieved, found.spread)


_known: weakref.WeakKeyDictionary[ClassData, dict[BasisClass, ClassData]] = weakref.WeakKeyDictionary()
