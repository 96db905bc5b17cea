"""Functions of a kernel at landmarks with a bounded norm: how much the good ones among them rely on a feature.

Under squared error the original and the switched risk are quadratics in the coefficients. For kernels that are sums of
products of a function of the feature and one of the other columns, the sum over all n(n-1) pairs factors into products
of two small matrices, so nothing is ever evaluated pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import comb
from typing import Any, Protocol, TypeAlias

import numpy as np

from reliance._array import Array, device, from_host, is_array, namespace, to_host
from reliance.classes.protocol import ClassData, Member, Range
from reliance.classes.quadratic_ranges import Quadratic, Region, least_quadratic, least_ratio, region
from reliance.draws import Host, narrow, take_columns, upload, wide
from reliance.features import Feature
from reliance.regressors import _median_distance, _squared_distances, least_squares

Factors: TypeAlias = list[tuple[Array, Array]]

# Directions of the landmarks' kernel matrix with less of its largest eigenvalue are rounding.
_LEAST_EIGENVALUE = 1e-12
_LEAST_SINGULAR = 1e-15
# Numbers held at a time beside a block of kernel values: the rows, the values, their rotation.
_COPIES = 4


# ---------------------------------------------------------------------------------------------------------------------
# Kernels


@dataclass(frozen=True, eq=False)
class Switch:
    """Rows whose feature comes from other rows: row i with donor k is ``kept_i + lent_k`` in the feature's columns.

    Attributes
    ----------
    kept : array (n, P)
        The rows; in the feature's columns 0, or what the other columns predict if only residuals are exchanged.
    lent : array (n, g)
        The rows' own feature, or its residuals.
    columns : tuple of int
        The g columns of the feature.
    conditional : bool
    """

    kept: Array
    lent: Array
    columns: tuple[int, ...]
    conditional: bool

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(j for j in range(self.kept.shape[1]) if j not in self.columns)

    def block(self, start: int, stop: int) -> Array:
        """Rows start..stop-1 with every donor: ((stop - start) n, P)."""
        xp = namespace(self.kept)
        n, P = self.kept.shape
        wider = xp.zeros((n, P), dtype=self.kept.dtype, device=device(self.kept))
        places = {column: g for g, column in enumerate(self.columns)}
        wider = xp.stack([self.lent[:, places[j]] if j in places else wider[:, j] for j in range(P)], axis=1)
        return xp.reshape(self.kept[start:stop, None, :] + wider[None, :, :], (-1, P))


class Kernel(Protocol):
    """A positive semidefinite function of pairs of rows; any callable is one."""

    def __call__(self, X: Array, C: Array, /) -> Array:
        """Values (n, m) for the rows X (n, P) and the landmarks C (m, P)."""
        ...


@dataclass(frozen=True, eq=False)
class RBF:
    """``exp(-sum_j (x_j - c_j)^2 / (2 w_j^2))``: a product over columns.

    Parameters
    ----------
    widths : (P,) on the host
    """

    widths: Host

    def __call__(self, X: Array, C: Array) -> Array:
        return self._of(X, C, range(X.shape[1]))

    def factors(self, switch: Switch, C: Array) -> Factors | None:
        if switch.conditional:  # the square of a sum does not split
            return None
        own = take_columns(C, switch.columns)
        widths = upload(self.widths[list(switch.columns)], own)
        xp = namespace(own)
        part = xp.exp(-0.5 * _squared_distances(switch.lent / widths, own / widths))
        return [(self._of(switch.kept, C, switch.others), part)]

    def _of(self, X: Array, C: Array, columns: Sequence[int]) -> Array:
        xp = namespace(X)
        if len(columns) == 0:
            return xp.ones((X.shape[0], C.shape[0]), dtype=X.dtype, device=device(X))
        widths = upload(self.widths[list(columns)], X)
        squares = _squared_distances(take_columns(X, columns) / widths, take_columns(C, columns) / widths)
        return xp.exp(-0.5 * squares)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """``(1 + sum_j x_j c_j / w_j^2)^degree``: by the binomial theorem a sum of ``degree + 1`` products."""

    widths: Host
    degree: int

    def __call__(self, X: Array, C: Array) -> Array:
        return (1 + self._inner(X, C, range(X.shape[1]))) ** self.degree

    def factors(self, switch: Switch, C: Array) -> Factors:
        rest = 1 + self._inner(switch.kept, C, range(C.shape[1]))
        widths = upload(self.widths[list(switch.columns)], C)
        own = namespace(C).matrix_transpose(take_columns(C, switch.columns) / widths**2)
        part = switch.lent @ own
        return [(comb(self.degree, t) * rest ** (self.degree - t), part**t) for t in range(self.degree + 1)]

    def _inner(self, X: Array, C: Array, columns: Sequence[int]) -> Array:
        widths = upload(self.widths[list(columns)], X)
        return (X / widths) @ namespace(X).matrix_transpose(C / widths)


@dataclass(frozen=True)
class ProductKernel:
    """A product of kernels of disjoint groups of columns.

    Parameters
    ----------
    parts : sequence of (columns, callable)
        Each callable takes (n, g) and (m, g), the group's columns of rows and landmarks, and returns (n, m).

    Notes
    -----
    A feature that is one group, or several, is exchanged without looking at pairs; one that cuts a group is not.
    """

    parts: tuple[tuple[tuple[int, ...], Callable[[Array, Array], Array]], ...]

    def __init__(self, parts: Sequence[tuple[Sequence[int], Callable[[Array, Array], Array]]]) -> None:
        object.__setattr__(self, "parts", tuple((tuple(columns), kernel) for columns, kernel in parts))
        used = [column for columns, _ in self.parts for column in columns]
        if not used or len(set(used)) < len(used):
            raise ValueError(f"parts={[columns for columns, _ in self.parts]}: name each column once, in one group")

    def __call__(self, X: Array, C: Array) -> Array:
        return self._of(X, C, self.parts)

    def factors(self, switch: Switch, C: Array) -> Factors | None:
        chosen = set(switch.columns)
        own = [part for part in self.parts if chosen.intersection(part[0])]
        if switch.conditional or any(not chosen.issuperset(columns) for columns, _ in own):
            return None
        lent = dict(zip(switch.columns, range(len(switch.columns)), strict=True))
        moved = [(tuple(lent[c] for c in columns), kernel) for columns, kernel in own]
        rest = [part for part in self.parts if part not in own]
        mine = take_columns(C, switch.columns)
        return [(self._of(switch.kept, C, rest), self._of(switch.lent, mine, moved))]

    def _of(self, X: Array, C: Array, parts: Sequence[Any]) -> Array:
        ones = namespace(X).ones((X.shape[0], C.shape[0]), dtype=X.dtype, device=device(X))
        values = (kernel(take_columns(X, columns), take_columns(C, columns)) for columns, kernel in parts)
        return reduce(lambda a, b: a * b, values, ones)


# ---------------------------------------------------------------------------------------------------------------------
# The class


@dataclass(frozen=True, eq=False)
class KernelModel:
    """``f(x) = intercept + sum_l coefficients_l k(x, c_l)``, computed in float64.

    Attributes
    ----------
    kernel : Kernel
    landmarks : array (m, P)
    coefficients : (m,), on the host
    intercept : float
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

    with mu free and K the kernel matrix of the landmarks.

    Parameters
    ----------
    kernel : {"rbf", "polynomial"} or callable
        ``exp(-sum_j (x_j - c_j)^2 / (2 w_j^2))``, ``(1 + sum_j x_j c_j / w_j^2)^degree``, a `ProductKernel`, or a
        function of rows (n, P) and landmarks (m, P) that returns (n, m), in their namespace.
    landmarks : int or array (m, P)
        How many evenly spaced rows, or the landmarks themselves.
    radius : float
        The largest norm of f - mu in the kernel's Hilbert space.
    bandwidth : float or sequence of float, optional
        w, for all columns or for each. None: for ``"rbf"`` the columns' standard deviations times the median distance
        between standardised landmarks; 1 for ``"polynomial"``.
    degree : int
        Of ``"polynomial"``.

    Notes
    -----
    Ranges are certified: two quadratics, risk and norm, are bounded, and the bound of their multipliers holds for every
    member. It is attained unless both constraints hold with equality in a special position; the achieved models show
    how far it is from being so.

    All pairs cost O(n m^2) for each feature with ``"rbf"``, ``"polynomial"`` (times (degree + 1)^2) and a
    `ProductKernel` whose groups the feature does not cut, and O(m^4) at worst beyond that, which is less because a
    feature's part of a kernel has a low rank. Otherwise, and for conditional reliance with anything but
    ``"polynomial"``, they cost O(n^2 m^2), in blocks.

    Directions of the landmarks' matrix with less than 1e-12 of its largest eigenvalue do not belong to the class: in
    float64 they are rounding. Sums over rows are taken where X is, in float64 (on the host if the device has none), and
    the small matrices on the host.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177), section 6.
    """

    kernel: str | Kernel = "rbf"
    landmarks: Any = 100
    radius: float | None = None
    bandwidth: float | Sequence[float] | None = None
    degree: int = 3

    def __post_init__(self) -> None:
        if not callable(self.kernel) and self.kernel not in ("rbf", "polynomial"):
            raise ValueError(f"kernel={self.kernel!r} is unknown: choose 'rbf', 'polynomial' or pass a function")
        if self.radius is None or not 0 < self.radius < np.inf:
            raise ValueError(
                f"radius={self.radius!r}: pass a positive number. A kernel with many landmarks fits almost anything, "
                "so that without a bound on the norm its good models rely on a feature as much as one likes"
            )
        if not is_array(self.landmarks) and (isinstance(self.landmarks, bool) or not isinstance(self.landmarks, int)):
            raise TypeError(f"landmarks={self.landmarks!r}: pass how many rows, or an array (m, P)")
        if isinstance(self.landmarks, int) and self.landmarks < 1:
            raise ValueError(f"landmarks={self.landmarks} is too few: pass at least 1")
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise ValueError(f"degree={self.degree!r}: pass an integer of at least 1")

    @property
    def loss(self) -> str:
        return "squared_error"

    def best(self, data: ClassData) -> Member:
        """The model of least risk: ridge regression whose penalty makes the norm at most the radius."""
        space = _Space.of(self, data)
        return space.member(space.best())

    def contains(self, data: ClassData, model: Any) -> Member:
        """A `KernelModel` with the class's kernel and landmarks and at most its norm."""
        if not isinstance(model, KernelModel):
            raise TypeError(
                f"reference={model!r} is no model of the KernelClass: pass a KernelModel, for instance the best or an "
                "extremal model of a result, or None for the best"
            )
        space = _Space.of(self, data)
        return space.member(space.coordinates(model, float(self.radius or 0)))

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
        where, least_risk = space.rashomon(bound)
        found = []
        for feature in features:
            switched = space.switched(space.switch(feature.columns, conditional), data.memory)
            found.append(_range(space, switched, where, least_risk, bound, compare))
            advance(1)
        return found


def _range(space: _Space, switched: Quadratic, where: Region, least_risk: float, bound: float, compare: str) -> Range:
    """Both ends of switched / risk, or of switched - risk."""
    ends = []
    for sign in (1.0, -1.0):
        top = Quadratic(sign * switched.A, sign * switched.b, sign * switched.c)
        if compare == "ratio":
            least = least_ratio(top, space.risk, where, (least_risk, max(bound, least_risk)))
        else:
            least = least_quadratic(top.plus(-sign, space.risk), where)
        z = space.within(least.point, where.inside, bound)
        achieved = switched(z) / space.risk(z) if compare == "ratio" else switched(z) - space.risk(z)
        ends.append((sign * least.bound, achieved, space.member(z)))
    (lower, achieved_lower, least_model), (upper, achieved_upper, most_model) = ends
    return Range(lower, upper, least_model, most_model, achieved_lower, achieved_upper)


@dataclass(frozen=True, eq=False)
class _Space:
    """The class on given rows, in coordinates z = (mu, v) with |v| the norm.

    Attributes
    ----------
    X, y : arrays (n, P), (n,)
        In float64.
    axes : (m, r), on the host
        alpha = axes v.
    inner : array (n, r)
        Values of the r orthonormal functions at the rows.
    risk : Quadratic
        The mean squared error in z.
    """

    X: Array
    y: Array
    kernel: Kernel
    landmarks: Array
    radius: float
    axes: Host
    inner: Array
    risk: Quadratic

    @staticmethod
    def of(given: KernelClass, data: ClassData) -> _Space:
        X = wide(data.X)
        xp = namespace(X)
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
        columns = _with_label(xp, inner, y)
        total = to_host(xp.matrix_transpose(columns) @ columns) / X.shape[0]
        return _Space(X, y, kernel, landmarks, float(given.radius or 0), axes, inner, _quadratic(total))

    def switch(self, columns: tuple[int, ...], conditional: bool) -> Switch:
        """What the rows keep and what they lend."""
        xp, P = namespace(self.X), self.X.shape[1]
        own = take_columns(self.X, columns)
        kept, lent = xp.zeros_like(own), own
        others = tuple(j for j in range(P) if j not in columns)
        if conditional:
            kept = least_squares(take_columns(self.X, others) if others else self.X[:, :0], own).predict(
                take_columns(self.X, others) if others else self.X[:, :0]
            )
            lent = own - kept
        places = {column: g for g, column in enumerate(columns)}
        rows = xp.stack([kept[:, places[j]] if j in places else self.X[:, j] for j in range(P)], axis=1)
        return Switch(rows, lent, columns, conditional)

    def switched(self, switch: Switch, memory: int) -> Quadratic:
        """The mean squared error over all pairs, in z."""
        xp, n = namespace(self.X), self.X.shape[0]
        factors = getattr(self.kernel, "factors", lambda *_: None)(switch, self.landmarks)
        total = self._by_blocks(switch, memory) if factors is None else self._by_factors(factors)
        own = _with_label(xp, self.inner, self.y)  # a row with itself as donor is the row
        return _quadratic((total - to_host(xp.matrix_transpose(own) @ own)) / (n * (n - 1)))

    def _by_factors(self, factors: Factors) -> Host:
        r"""Sums of products over all n^2 pairs of the columns (y, 1, functions), each a sum of products of factors.

        For one factor (B, A): :math:`\sum_{ik} B_{il} A_{kl} B_{im} A_{km} = (B'B) \circ (A'A)`. That is the Gram
        matrix of the columns' Kronecker products of triangular factors of B and A, and it is taken in this form: the
        rotation into orthonormal functions would enlarge the rounding of the other by the inverse of the least
        eigenvalue.
        """
        xp, n = namespace(self.X), self.X.shape[0]
        ones = xp.ones((n, 1), dtype=self.X.dtype, device=device(self.X))
        none = xp.zeros((n, 2), dtype=self.X.dtype, device=device(self.X))
        heads = [(xp.concat([self.y[:, None], ones], axis=1), xp.concat([ones, ones], axis=1))]
        heads += [(none, none)] * (len(factors) - 1)
        width = 2 + self.axes.shape[0]
        rest = _triangular(
            xp.concat([part for h, f in zip(heads, factors, strict=True) for part in (h[0], f[0])], axis=1)
        )
        lent = _triangular(
            xp.concat([part for h, f in zip(heads, factors, strict=True) for part in (h[1], f[1])], axis=1)
        )
        rotation = np.zeros((width, 2 + self.axes.shape[1]))
        rotation[:2, :2], rotation[2:, 2:] = np.eye(2), self.axes
        total = np.zeros((rotation.shape[1],) * 2)
        for line in range(rest.shape[0]):  # one row of the rest's factor at a time: (rank, m) numbers
            products = sum(
                rest[line, t * width : (t + 1) * width] * lent[:, t * width : (t + 1) * width]
                for t in range(len(factors))
            )
            part = products @ rotation
            total += part.T @ part
        return total

    def _by_blocks(self, switch: Switch, memory: int) -> Host:
        """The same sums by evaluating the kernel for every pair."""
        xp, n = namespace(self.X), self.X.shape[0]
        axes = upload(self.axes, self.X)
        size = 8 * n * _COPIES * (sum(self.axes.shape) + self.X.shape[1])
        total = np.zeros((2 + self.axes.shape[1],) * 2)
        for start, stop in _spans(n, max(memory // size, 1)):
            inner = self.kernel(switch.block(start, stop), self.landmarks) @ axes
            labels = xp.reshape(xp.broadcast_to(self.y[start:stop, None], (stop - start, n)), (-1,))
            columns = _with_label(xp, inner, labels)
            total += to_host(xp.matrix_transpose(columns) @ columns)
        return total

    def best(self) -> Host:
        """The z of least risk: (S + penalty) v = s for the covariances S, s, the penalty least with |v| <= radius."""
        mean, cross = -self.risk.b[0], self.risk.A[0, 1:]
        S = self.risk.A[1:, 1:] - np.outer(cross, cross)
        s = -self.risk.b[1:] - mean * cross
        values, vectors = np.linalg.eigh((S + S.T) / 2)
        values, turned = np.maximum(values, 0.0), vectors.T @ s

        def norm(penalty: float) -> float:
            return float(np.linalg.norm(turned / (values + penalty)))

        # Rounding is all that S has below this; the norm falls with the penalty and is at most |s| / penalty.
        low, high = 1e-15 * max(float(values[-1]), 1e-300), max(float(np.linalg.norm(turned)) / self.radius, 1e-300)
        if high > low and norm(low) > self.radius:
            for _ in range(200):
                middle = float(np.sqrt(low * high))
                low, high = (middle, high) if norm(middle) > self.radius else (low, middle)
                if high <= low * (1 + 1e-15):
                    break
        penalty = high if norm(low) > self.radius else low
        v = vectors @ (turned / (values + penalty))
        return np.concatenate([[mean - cross @ v], v])

    def rashomon(self, bound: float) -> tuple[Region, float]:
        """The z with at most that risk and the radius, and the least risk."""
        z = self.best()
        least = self.risk(z)
        slack = bound - least
        if slack < -1e-9 * least:
            raise ValueError(
                f"no model of the class has a risk of at most {bound:g}: the best has {least:g}. Raise epsilon or "
                "radius"
            )
        # A set of one point is given the width of rounding: a larger set only makes the bounds wider.
        slack = max(slack, 1e-12 * (least + abs(self.risk.c) * 1e-3))
        size = len(z)
        ball = np.diag(np.concatenate([[0.0], np.ones(size - 1)]))
        risk = self.risk.plus(-(least + slack), Quadratic(np.zeros((size, size)), np.zeros(size), 1.0))
        norm = Quadratic(ball, np.zeros(size), -(self.radius**2))
        return region((risk, norm), (slack, self.radius**2), z), least

    def within(self, z: Host, inside: Host, bound: float) -> Host:
        """z, moved towards an inner point by rounding until its risk, summed row by row, is at most the bound."""
        back = 1e-14
        while self.member(z).risk > bound and back < 1:
            z, back = z + back * (inside - z), 8 * back
        return z if back < 1 else inside

    def member(self, z: Host) -> Member:
        model = KernelModel(self.kernel, self.landmarks, self.axes @ z[1:], float(z[0]))
        left = self.y - (self.inner @ upload(z[1:], self.X) + float(z[0]))
        return Member(model, float(to_host(namespace(left).mean(left * left))))

    def coordinates(self, model: KernelModel, radius: float) -> Host:
        """The z of a model; an error if it is not in the class."""
        marks = to_host(model.landmarks)
        own = to_host(self.landmarks)
        if marks.shape != own.shape or not np.allclose(marks, own):
            raise ValueError("reference has other landmarks than the class: fit it with the class, or pass None")
        values = to_host(self.kernel(self.landmarks, self.landmarks))
        if not np.allclose(to_host(model.kernel(self.landmarks, self.landmarks)), values):
            raise ValueError("reference has another kernel than the class: fit it with the class, or pass None")
        # axes' K axes = I, so these are its coordinates among the orthonormal functions.
        v = self.axes.T @ (values @ model.coefficients)
        norm = float(np.sqrt(max(model.coefficients @ values @ model.coefficients, 0.0)))
        if norm > radius * (1 + 1e-9):
            raise ValueError(
                f"reference has the norm {norm:g}, more than radius={radius:g}: raise radius, or pass another reference"
            )
        return np.concatenate([[model.intercept], v])


def _landmarks(given: Any, X: Array) -> Array:
    n, P = X.shape
    if isinstance(given, int):
        places = np.unique(np.linspace(0, n - 1, min(given, n)).round().astype(np.int64))
        return namespace(X).take(X, from_host(places, namespace(X), device(X)), axis=0)
    if given.ndim != 2 or given.shape[1] != P:
        raise ValueError(f"landmarks has shape {tuple(given.shape)}, but X has {P} columns: pass (m, {P})")
    return upload(wide(given), X)


def _kernel(given: KernelClass, X: Array, landmarks: Array) -> Kernel:
    P = X.shape[1]
    if given.bandwidth is None:
        widths = np.ones(P) if given.kernel == "polynomial" else _median_widths(X, landmarks)
    else:
        widths = np.broadcast_to(np.asarray(given.bandwidth, dtype=np.float64), (P,)).copy()
    if not (widths > 0).all():
        raise ValueError(f"bandwidth={given.bandwidth!r}: pass a positive number, or one for each of {P} columns")
    return RBF(widths) if given.kernel == "rbf" else Polynomial(widths, given.degree)


def _median_widths(X: Array, landmarks: Array) -> Host:
    xp = namespace(X)
    spread, middle = to_host(xp.std(X, axis=0)), to_host(xp.mean(X, axis=0))
    spread = np.where(spread > 1e-13 * np.abs(middle), spread, 1.0)
    scaled = to_host(landmarks) / spread
    return spread * _median_distance(_squared_distances(scaled, scaled))


def _with_label(xp: Any, inner: Array, y: Array) -> Array:
    """The columns (y, 1, functions)."""
    return xp.concat([y[:, None], xp.ones_like(y)[:, None], inner], axis=1)


def _quadratic(total: Host) -> Quadratic:
    """``|y - mu - functions v|^2`` from the products of the columns (y, 1, functions)."""
    A = (total[1:, 1:] + total[1:, 1:].T) / 2
    return Quadratic(A, -total[1:, 0], float(total[0, 0]))


def _triangular(columns: Array) -> Host:
    """R (rank, columns) with R'R = columns'columns, without directions that are rounding."""
    xp = namespace(columns)
    factor = columns
    if columns.shape[0] > columns.shape[1]:
        factor = xp.linalg.qr(columns)[1]
    _, sizes, right = np.linalg.svd(to_host(factor), full_matrices=False)
    kept = sizes > _LEAST_SINGULAR * sizes[0]
    return np.asarray(sizes[kept, None] * right[kept])


def _spans(n: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, size):
        yield start, min(start + size, n)
