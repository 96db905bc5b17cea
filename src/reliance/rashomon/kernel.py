"""Functions of a kernel at landmarks with a bounded norm: how much the good ones among them rely on a feature.

In orthonormal functions they are linear models whose coefficients lie in a ball, under squared error as `ball` has it;
only the switched risk is another quadratic, from the kernel's pairs.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reliance._core.arrays import device, from_host, is_array, namespace, to_host
from reliance._core.kinds import Array
from reliance._core.words import shown
from reliance.data.features import Feature
from reliance.rashomon.ball import Ball
from reliance.rashomon.ellipsoid import Ellipsoid, Point, range_of
from reliance.rashomon.kernel_pairs import RBF, Kernel, Polynomial, ProductKernel, Switch
from reliance.rashomon.kernel_sums import own_products, pair_products
from reliance.rashomon.moments import check_intercept, fixed_intercept, row_moments
from reliance.rashomon.protocol import ClassData, Member, Range
from reliance.rashomon.switched_ends import Functions
from reliance.rashomon.trust_region import Quadratic
from reliance.samplers.draws import Host, narrow, upload, wide
from reliance.samplers.regressors import _median_distance, _squared_distances

__all__ = ["RBF", "KernelClass", "KernelModel", "Polynomial", "ProductKernel"]

# Directions of the landmarks' kernel matrix with less of its largest eigenvalue are rounding.
_LEAST_EIGENVALUE = 1e-12


@dataclass(frozen=True, eq=False)
class KernelModel:
    """``f(x) = intercept + sum_l coefficients_l k(x, c_l)``, computed in float64.

    Attributes
    ----------
    kernel : Kernel
    landmarks : array (m, P)
    coefficients : (m,), on the host
    intercept : float

    Examples
    --------
    >>> model = KernelModel(Polynomial(np.ones(1), degree=1), np.array([[2.0]]), np.array([3.0]), 1.0)
    >>> model(np.array([[0.0], [1.0]])).tolist()  # 1 + 3 (1 + 2 x)
    [4.0, 10.0]
    """

    kernel: Kernel
    landmarks: Array
    coefficients: Host
    intercept: float

    def __call__(self, X: Array) -> Array:
        rows = wide(X)
        values = self.kernel(rows, upload(self.landmarks, rows))
        return narrow(values @ upload(self.coefficients, rows) + self.intercept, X)


@dataclass(frozen=True)
class KernelClass:
    r"""Functions of a kernel at landmarks, with at most a given norm, under squared error.

    .. math:: f(x) = \mu + \sum_{l=1}^{m} \alpha_l k(x, c_l), \qquad \alpha' K \alpha \le radius^2

    with K the kernel matrix of the landmarks, and mu free unless ``intercept`` fixes it.

    Parameters
    ----------
    kernel : {"rbf", "polynomial"} or callable
        ``exp(-sum_j (x_j - c_j)^2 / (2 w_j^2))``, ``(1 + sum_j x_j c_j / w_j^2)^degree``, a ``ProductKernel``, or a
        function of rows (n, P) and landmarks (m, P) that returns (n, m), in their namespace.
    landmarks : int or array (m, P)
        How many evenly spaced rows (all of them if there are fewer), or the landmarks themselves.
    radius : float
        The largest norm of f - mu in the kernel's Hilbert space.
    bandwidth : float or sequence of float, optional
        w, for all columns or for each. None: for ``"rbf"`` the columns' standard deviations times the median distance
        between standardised landmarks; 1 for ``"polynomial"``.
    degree : int
        Of ``"polynomial"``.
    intercept : bool or float
        Whether mu is free, or the number that it is in all models (False: 0).

    Notes
    -----
    Ranges are certified: two quadratics, risk and norm, are bounded, and the bound of their multipliers holds for every
    member. It is attained unless both constraints hold with equality in a special position; the achieved models show
    how far it is from being so.

    All pairs cost O(n m^2) for each feature with ``"rbf"``, ``"polynomial"`` (times (degree + 1)^2) and a
    ``ProductKernel`` whose groups the feature does not cut, and O(m^4) at worst beyond that, which is less because a
    feature's part of a kernel has a low rank. Otherwise, and for conditional reliance with anything but
    ``"polynomial"``, they cost O(n^2 m^2), in blocks.

    Directions of the landmarks' matrix with less than 1e-12 of its largest eigenvalue do not belong to the class: in
    float64 they are rounding. Sums over rows are taken where X is, in float64 (on the host if the device has none), and
    the small matrices on the host.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 6.

    Examples
    --------
    >>> import reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=200)
    >>> found = rl.model_class_reliance(rl.KernelClass("rbf", landmarks=20, radius=5.0), X, y, epsilon=0.05)
    >>> bool(found.lower[0] > 3), bool(found.upper[1] < 1.3)
    (True, True)
    """

    kernel: str | Kernel = "rbf"
    landmarks: int | Array = 100
    radius: float | None = None
    bandwidth: float | Sequence[float] | None = None
    degree: int = 3
    intercept: bool | float = True

    def __post_init__(self) -> None:
        if not callable(self.kernel) and self.kernel not in ("rbf", "polynomial"):
            raise ValueError(f"kernel={shown(self.kernel)} is unknown: choose 'rbf', 'polynomial' or pass a function")
        if not isinstance(self.radius, int | float | np.number) or not 0 < self.radius < np.inf:
            raise ValueError(
                f"radius={shown(self.radius)}: pass a positive number. A kernel with many landmarks fits almost "
                "anything, so that without a bound on the norm its good models rely on a feature as much as one likes"
            )
        if not is_array(self.landmarks) and (isinstance(self.landmarks, bool) or not isinstance(self.landmarks, int)):
            raise TypeError(f"landmarks={shown(self.landmarks)}: pass how many rows, or an array (m, P)")
        if isinstance(self.landmarks, int) and self.landmarks < 1:
            raise ValueError(f"landmarks={self.landmarks} is too few: pass at least 1")
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise ValueError(f"degree={shown(self.degree)}: pass an integer of at least 1")
        if self.degree != 3 and self.kernel != "polynomial":
            raise ValueError(f"degree={self.degree} has no effect: it is for kernel='polynomial'")
        if self.bandwidth is not None and callable(self.kernel):
            raise ValueError(f"bandwidth={shown(self.bandwidth)} has no effect: scale the columns inside your kernel")
        check_intercept(self.intercept)

    @property
    def loss(self) -> str:
        return "squared_error"

    def best(self, data: ClassData) -> Member:
        """The model of least risk: ridge regression whose penalty makes the norm at most the radius."""
        return _Space.of(self, data).best

    def contains(self, data: ClassData, model: object) -> Member:
        """A ``KernelModel`` with the class's kernel and landmarks and at most its norm."""
        if not isinstance(model, KernelModel):
            raise TypeError(
                f"reference={shown(model)} is not a model of the KernelClass: pass a KernelModel, for instance the "
                "best or an extremal model of a result, or None for the best"
            )
        space = _Space.of(self, data)
        point = space.point(model)
        return space.member(point, space.ball.shape.risk(point))

    def ranges(
        self,
        data: ClassData,
        bound: float,
        features: tuple[Feature, ...],
        compare: str,
        conditional: bool,
        advance: Callable[[int], None],
    ) -> list[Range]:
        """The range of each feature; lower and upper ends are certified."""
        space = _Space.of(self, data)
        if compare == "ratio" and space.best.risk == 0.0:
            raise ValueError(
                "compare='ratio' divides by the risk, and the best model of the class predicts these rows exactly: use "
                "compare='difference', fewer landmarks, or a smaller radius"
            )
        if bound == 0.0:
            raise ValueError(
                "the best model of the class predicts these rows exactly, so only exact models are good: pass "
                "relative=False with a positive epsilon, fewer landmarks, or a smaller radius"
            )
        found = []
        for feature in features:
            switched = space.switched(Switch.of(space.X, feature.columns, conditional), data.memory)
            low, high = space.functions.ends(switched, bound, compare)
            found.append(range_of(low, high, space.member))
            advance(1)
        return found


@dataclass(frozen=True, eq=False)
class _Space:
    """The class on given rows: linear models of r orthonormal functions, whose coefficients v have the norm |v|.

    Attributes
    ----------
    X, y : arrays (n, P), (n,)
        In float64.
    axes : (m, r), on the host
        alpha = axes v.
    inner : array (n, r)
        Values of the functions at the rows.
    ball : Ball
        Of the v, with the risk.
    fixed : float
        mu, unless it is free.
    """

    X: Array
    y: Array
    kernel: Kernel
    landmarks: Array
    axes: Host
    inner: Array
    ball: Ball
    fixed: float

    @staticmethod
    def of(given: KernelClass, data: ClassData) -> _Space:
        """Made once for the same class and rows."""
        known = _known.setdefault(data, [])
        for own, space in known:
            if own is given:
                return space
        known.append((given, _Space.new(given, data)))
        return known[-1][1]

    @staticmethod
    def new(given: KernelClass, data: ClassData) -> _Space:
        X = wide(data.X)
        y = upload(to_host(data.y).astype(np.float64), X)
        landmarks = _landmarks(given.landmarks, X)
        kernel = given.kernel if callable(given.kernel) else _kernel(given, X, landmarks)
        matrix = to_host(kernel(landmarks, landmarks))
        if matrix.shape != (landmarks.shape[0],) * 2:
            raise ValueError(f"kernel returned shape {matrix.shape} for {landmarks.shape[0]} landmarks twice")
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        if not values[-1] > 0 or values[0] < -1e-8 * values[-1]:
            raise ValueError(
                f"kernel is not positive semidefinite: its matrix of the landmarks has the eigenvalue {values[0]:g}"
            )
        kept = values > _LEAST_EIGENVALUE * values[-1]
        axes = vectors[:, kept] / np.sqrt(values[kept])
        inner = kernel(X, landmarks) @ upload(axes, X)
        moments = row_moments(ClassData(inner, y, data.key, data.memory)).about(given.intercept)
        shape = Ellipsoid(moments, given.intercept is True)
        ball, fixed = Ball(shape, float(given.radius or 0)), fixed_intercept(given.intercept)
        return _Space(X, y, kernel, landmarks, axes, inner, ball, fixed)

    @property
    def best(self) -> Member:
        return self.member(self.ball.solution[0], self.ball.least)

    @cached_property
    def own(self) -> Host:
        """Products of (y, 1, functions), summed over the rows."""
        return own_products(self.inner, self.y)

    def switched(self, switch: Switch, memory: int) -> Quadratic:
        """The mean squared error over all pairs, a quadratic in (mu, v)."""
        total = pair_products(self.kernel, switch, self.landmarks, self.axes, self.y, memory=memory, own=self.own)
        return Quadratic.of_products(total)

    @property
    def functions(self) -> Functions:
        return Functions(self.ball.shape, self.ball, self.fixed)

    def full(self, point: Point) -> Host:
        """(mu, v)."""
        return self.functions.full(point)

    def member(self, point: Point, risk: float) -> Member:
        mu, *v = self.full(point)
        return Member(KernelModel(self.kernel, self.landmarks, self.axes @ np.asarray(v), float(mu)), risk)

    def point(self, model: KernelModel) -> Point:
        """The coefficients of a model; an error if it is not in the class."""
        marks, own = to_host(model.landmarks), to_host(self.landmarks)
        if marks.shape != own.shape or not np.allclose(marks, own):
            raise ValueError("reference has other landmarks than the class: fit it with the class, or pass None")
        values = to_host(self.kernel(self.landmarks, self.landmarks))
        if not np.allclose(to_host(model.kernel(self.landmarks, self.landmarks)), values):
            raise ValueError("reference has another kernel than the class: fit it with the class, or pass None")
        square = float(model.coefficients @ values @ model.coefficients)
        norm, radius = math.sqrt(max(square, 0.0)), self.ball.radius
        if norm > radius * (1 + 1e-9):
            raise ValueError(
                f"reference has the norm {norm:g}, more than radius={radius:g}: raise radius, or pass another reference"
            )
        # axes' K axes = I, so these are its coordinates among the orthonormal functions.
        v = self.axes.T @ (values @ model.coefficients)
        mean = self.ball.shape.moments.mean
        if not self.ball.shape.intercept:
            if model.intercept != self.fixed:
                raise ValueError(
                    f"reference has the intercept {model.intercept:g} but all models of the class have {self.fixed:g}: "
                    "pass intercept=True to the class, or another reference"
                )
            return Point(v, 0.0)
        return Point(v, float(mean[-1] - model.intercept - mean[:-1] @ v))


# By identity: landmarks and kernels need not be hashable.
_known: weakref.WeakKeyDictionary[ClassData, list[tuple[KernelClass, _Space]]] = weakref.WeakKeyDictionary()


def _landmarks(given: int | Array, X: Array) -> Array:
    n, P = X.shape
    if isinstance(given, int):
        places = np.unique(np.linspace(0, n - 1, min(given, n)).round().astype(np.int64))
        return namespace(X).take(X, from_host(places, namespace(X), device(X)), axis=0)
    if given.ndim != 2 or given.shape[1] != P or given.shape[0] == 0:
        raise ValueError(f"landmarks has shape {tuple(given.shape)}, but X has {P} columns: pass (m, {P})")
    return upload(wide(given), X)


def _kernel(given: KernelClass, X: Array, landmarks: Array) -> Kernel:
    P = X.shape[1]
    if given.bandwidth is None:
        widths = np.ones(P) if given.kernel == "polynomial" else _median_widths(X, landmarks)
    else:
        try:
            widths = np.asarray(given.bandwidth, dtype=np.float64)
        except (TypeError, ValueError):
            widths = np.zeros(0)  # text, say: refused below
        widths = np.full(P, widths) if widths.ndim == 0 else widths
    if widths.shape != (P,) or not (widths > 0).all() or not np.isfinite(widths).all():
        raise ValueError(f"bandwidth={shown(given.bandwidth)}: pass a positive number, or one for each of {P} columns")
    return RBF(widths) if given.kernel == "rbf" else Polynomial(widths, given.degree)


def _median_widths(X: Array, landmarks: Array) -> Host:
    xp = namespace(X)
    spread, middle = to_host(xp.std(X, axis=0)), to_host(xp.mean(X, axis=0))
    spread = np.where(spread > 1e-13 * np.abs(middle), spread, 1.0)
    scaled = to_host(landmarks) / spread
    return np.asarray(spread * _median_distance(to_host(_squared_distances(scaled, scaled))))
