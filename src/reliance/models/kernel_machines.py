"""Kernel machines of scikit-learn, read into centres and coefficients: what they predict is a sum over the centres.

What a model holds is read, never guessed: for anything that is not understood there are words, and the model is then
evaluated as any other. What was read is to be compared with the model's own predictions before it is relied on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance.models.ensembles import Finish
from reliance.models.libraries import (
    GaussianProcess,
    GaussianProcessKernel,
    KernelRidge,
    SupportVectors,
)
from reliance.models.tree_parts import Cut, classification, regression
from reliance.models.untouched import inherits

Floats: TypeAlias = NDArray[np.float64]
_METHODS = ("predict", "decision_function", "_decision_function", "_get_kernel", "_predict", "_dense_predict")
# Of polynomial kernels: beyond it sums of products lose digits.
_MOST_DEGREE = 8
# Kernel values that are held together, a few copies of them.
_VALUES = 2**19


class Kernel(Protocol):
    """A function of the sum over columns of something that each of them gives.

    It is a sum of products: of what is kept where some columns give ``rest``, and what is lent where the others give
    ``own`` to the sum.
    """

    def inner(self, X: Floats, centres: Floats, columns: Sequence[int]) -> Floats:
        """``(n, s)``: what some columns give to the sum."""
        ...

    def kept(self, rest: Floats) -> list[Floats]:
        """The first factors, ``(n, s)`` each."""
        ...

    def lent(self, own: Floats) -> list[Floats]:
        """The second factors, ``(m, s)`` each, as many as there are first ones."""
        ...

    def degree(self) -> int | None:
        """The degree of the kernel as a polynomial in a value of one column; None if it is none."""
        ...


@dataclass(frozen=True, eq=False)
class Gaussian:
    """``exp(-sum_j rate_j (x_j - z_j)^2)``: a product over columns.

    Examples
    --------
    >>> kernel = Gaussian(np.array([1.0, 0.25]))
    >>> kernel.inner(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 2.0]]), [0, 1]).tolist()
    [[0.0, 2.0]]
    """

    rates: Floats

    def inner(self, X: Floats, centres: Floats, columns: Sequence[int]) -> Floats:
        scale = np.sqrt(self.rates[list(columns)])
        if len(scale) == 1:  # as exact as it can be, and no slower
            found = np.subtract.outer(X[:, columns[0]] * scale[0], centres[:, columns[0]] * scale[0])
            return np.asarray(found * found)
        # About the centres' mean, where the squares have the fewest digits to lose.
        middle = centres[:, list(columns)].mean(axis=0)
        x, z = ((part[:, list(columns)] - middle) * scale for part in (X, centres))
        found = x @ (-2.0 * z.T)
        found += np.einsum("ij,ij->i", x, x)[:, None]
        found += np.einsum("ij,ij->i", z, z)
        return np.asarray(np.maximum(found, 0.0))

    def kept(self, rest: Floats) -> list[Floats]:
        return [np.exp(-rest)]

    def lent(self, own: Floats) -> list[Floats]:
        return [np.exp(-own)]

    def degree(self) -> int | None:
        return None


@dataclass(frozen=True, eq=False)
class Power:
    """``(scale sum_j x_j z_j + constant)^exponent``: by the binomial theorem a sum of products.

    Examples
    --------
    >>> kernel = Power(scale=1.0, constant=1.0, exponent=2)
    >>> parts = zip(kernel.kept(np.array([[3.0]])), kernel.lent(np.array([[2.0]])), strict=True)
    >>> sum(float(a[0, 0] * b[0, 0]) for a, b in parts)  # (3 + 2 + 1)^2
    36.0
    """

    scale: float
    constant: float
    exponent: int

    def inner(self, X: Floats, centres: Floats, columns: Sequence[int]) -> Floats:
        return np.asarray(self.scale * X[:, list(columns)] @ centres[:, list(columns)].T)

    def kept(self, rest: Floats) -> list[Floats]:
        falling = reversed(_powers(rest + self.constant, self.exponent))
        return [comb(self.exponent, t) * power for t, power in enumerate(falling)]

    def lent(self, own: Floats) -> list[Floats]:
        return _powers(own, self.exponent)

    def degree(self) -> int | None:
        return self.exponent


def _powers(x: Floats, most: int) -> list[Floats]:
    """From 0 on."""
    found = [np.ones_like(x)]
    for _ in range(most):
        found.append(found[-1] * x)
    return found


class Term(NamedTuple):
    """A kernel and its coefficients (s,), one for each centre."""

    kernel: Kernel
    coef: Floats


class Sums(NamedTuple):
    """For each row the raw output (m,), and how large the terms are that it is the sum of."""

    raw: Floats
    size: Floats


@dataclass(frozen=True, eq=False)
class KernelMachine:
    """``finish(sum_s coef_s k(x, z_s) + offset)``; with several kernels, the sum of such sums.

    Attributes
    ----------
    centres : array (s, P)
        The rows z_s: support vectors, or all rows that it was fitted on.
    terms : tuple of Term
    offset : float
    finish : Finish
        How raw outputs (m, 1) become predictions.

    Examples
    --------
    >>> machine = KernelMachine(np.eye(2), (Term(Power(1.0, 0.0, 1), np.array([1.0, 2.0])),), 3.0, Finish())
    >>> machine.finish(machine.sums(np.array([[1.0, 1.0]])).raw[:, None]).tolist()  # x_0 + 2 x_1 + 3
    [6.0]
    """

    centres: Floats
    terms: tuple[Term, ...]
    offset: float
    finish: Finish

    @property
    def n_features(self) -> int:
        return int(self.centres.shape[1])

    @property
    def width(self) -> int:
        """How many products a row's raw output is the sum of."""
        several = sum(1 if (degree := term.kernel.degree()) is None else degree + 1 for term in self.terms)
        return several * len(self.centres)

    def strips(self, n: int) -> list[slice]:
        """Rows that are worked on together."""
        step = max(_VALUES // self.width, 1)
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def kept(self, X: Floats, columns: Sequence[int]) -> Floats:
        """``(n, width)``: what rows keep where some columns are taken from other rows.

        A product of a row of it and one of `lent` is a raw output less the offset. What the columns give is never
        divided out of the whole, which may be too small for that.
        """
        others = [j for j in range(self.n_features) if j not in columns]
        found = [
            part * coef for kernel, coef in self.terms for part in kernel.kept(kernel.inner(X, self.centres, others))
        ]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def lent(self, X: Floats, columns: Sequence[int]) -> Floats:
        """``(m, width)``: what rows lend with these columns."""
        found = [part for kernel, _ in self.terms for part in kernel.lent(kernel.inner(X, self.centres, columns))]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def sums(self, X: Floats) -> Sums:
        """The raw outputs of rows."""
        raw, size = np.full(len(X), self.offset), np.full(len(X), abs(self.offset))
        everything = list(range(self.n_features))
        for rows in self.strips(len(X)):
            for kernel, coef in self.terms:
                # Everything is kept: of the products only the first is not 0.
                values = kernel.kept(kernel.inner(X[rows], self.centres, everything))[0]
                raw[rows] += values @ coef
                size[rows] += np.abs(values) @ np.abs(coef)
        return Sums(raw, size)


# ---------------------------------------------------------------------------------------------------------------------
# Reading


class NotRead(Exception):
    """Why a machine is not read, in a few words that go on after "cannot read the kernel machine: "."""


def read(model: object, method: str) -> KernelMachine | str:
    """The machine behind ``model.method``; or why there is none: in a few words, if there are any."""
    if "sklearn" not in sys.modules or not type(model).__module__.startswith("sklearn."):
        return ""
    reader = _reader(model)
    if reader is None or not inherits(model, _METHODS, "sklearn"):
        return ""
    try:
        return reader(model, method)
    except NotRead as reason:
        return str(reason)
    except Exception:  # not fitted, or another layout: it may fail anywhere, and the model itself still works
        return ""


def _reader(model: object) -> Callable[..., KernelMachine] | None:
    """By the class itself: a subclass may predict otherwise."""
    from sklearn import gaussian_process, kernel_ridge, svm

    if type(model) in (svm.SVR, svm.NuSVR, svm.SVC, svm.NuSVC, svm.OneClassSVM):
        return _support_vectors
    if type(model) is kernel_ridge.KernelRidge:
        return _kernel_ridge
    return _gaussian_process if type(model) is gaussian_process.GaussianProcessRegressor else None


def _support_vectors(model: SupportVectors, method: str) -> KernelMachine:
    if model._sparse:
        raise NotRead("it was fitted on a sparse matrix")
    labels = getattr(model, "classes_", None)
    finish: Finish | None
    if labels is not None:
        if len(labels) != 2:
            raise NotRead("it tells several classes apart, one pair at a time")
        if method == "predict_proba":
            raise NotRead("its probabilities are fitted to its scores: pass loss='hinge' or 'zero_one'")
        finish = classification(method, 1, labels, "identity", 1.0, Cut(0.0, True))
    elif method == "decision_function":
        finish = Finish()
    elif hasattr(model, "offset_"):  # one class: inside or outside
        finish = Finish(output="threshold", classes=(-1, 1), cut=0.0)
    else:
        finish = regression(method, 1)
    if finish is None:
        raise NotRead("its labels are no numbers")
    kernel = _named(model.kernel, float(model._gamma), float(model.coef0), float(model.degree))
    coef = np.asarray(model.dual_coef_, dtype=np.float64).reshape(-1)
    centres = np.asarray(model.support_vectors_, dtype=np.float64)
    return KernelMachine(centres, (Term(kernel(centres.shape[1]), coef),), float(model.intercept_[0]), finish)


def _kernel_ridge(model: KernelRidge, method: str) -> KernelMachine:
    centres = np.asarray(model.X_fit_, dtype=np.float64)
    coef = np.asarray(model.dual_coef_, dtype=np.float64)
    if coef.ndim != 1:
        raise NotRead("it has several outputs, or one as a column: fit it with y of shape (n,)")
    gamma = 1.0 / centres.shape[1] if model.gamma is None else float(model.gamma)
    kernel = _named(model.kernel, gamma, float(model.coef0), float(model.degree))
    return KernelMachine(centres, (Term(kernel(centres.shape[1]), coef),), 0.0, _predicts(method))


def _predicts(method: str) -> Finish:
    finish = regression(method, 1)
    if finish is None:
        raise NotRead(f"its {method} is not known")
    return finish


def _named(kernel: object, gamma: float, constant: float, degree: float) -> Callable[[int], Kernel]:
    """A kernel of P columns, by scikit-learn's name of it."""
    if kernel == "rbf":
        return lambda columns: Gaussian(np.full(columns, gamma))
    if kernel == "linear":
        return lambda columns: Power(1.0, 0.0, 1)
    if kernel in ("poly", "polynomial") and degree == int(degree) and 0 <= degree <= _MOST_DEGREE:
        return lambda columns: Power(gamma, constant, int(degree))
    name = kernel if isinstance(kernel, str) else "of your own"
    raise NotRead(f"its kernel {name} is not 'rbf', 'linear' or 'poly' of a whole degree up to {_MOST_DEGREE}")


def _gaussian_process(model: GaussianProcess, method: str) -> KernelMachine:
    centres = np.asarray(model.X_train_, dtype=np.float64)
    alpha, spread = np.asarray(model.alpha_, dtype=np.float64), np.asarray(model._y_train_std, dtype=np.float64)
    if alpha.ndim != 1 or spread.size != 1:
        raise NotRead("it has several outputs, or one as a column: fit it with y of shape (n,)")
    alpha, offset, terms = alpha * spread.item(), np.asarray(model._y_train_mean, dtype=np.float64).item(), []
    for share in _shares(model.kernel_, centres.shape[1]):
        if share.kernel is None:
            offset += share.times * float(alpha.sum())
        else:
            terms.append(Term(share.kernel, share.times * alpha))
    if not terms:
        raise NotRead("its kernel is constant")
    return KernelMachine(centres, tuple(terms), offset, _predicts(method))


class _Share(NamedTuple):
    """A part of a sum of kernels: a constant times a kernel, or the constant alone."""

    times: float
    kernel: Kernel | None


def _shares(kernel: GaussianProcessKernel, columns: int) -> list[_Share]:
    """A kernel of a Gaussian process as a sum: between rows and centres white noise is 0."""
    from sklearn.gaussian_process import kernels

    if type(kernel) is kernels.WhiteKernel:
        return []
    if type(kernel) is kernels.ConstantKernel:
        return [_Share(float(kernel.constant_value), None)]
    if type(kernel) is kernels.RBF:
        scales = np.broadcast_to(np.asarray(kernel.length_scale, dtype=np.float64), (columns,))
        return [_Share(1.0, Gaussian(0.5 / scales**2))]
    if type(kernel) is kernels.DotProduct:
        return [_Share(1.0, Power(1.0, float(kernel.sigma_0) ** 2, 1))]
    if type(kernel) is kernels.Sum:
        return [*_shares(kernel.k1, columns), *_shares(kernel.k2, columns)]
    if type(kernel) is kernels.Product:
        first, second = _shares(kernel.k1, columns), _shares(kernel.k2, columns)
        return [_product(a, b) for a in first for b in second]
    if type(kernel) is kernels.Exponentiation and type(kernel.kernel) is kernels.DotProduct:
        return [_Share(1.0, _named("poly", 1.0, float(kernel.kernel.sigma_0) ** 2, float(kernel.exponent))(columns))]
    raise NotRead(f"its kernel {type(kernel).__name__[:40]} is not made of RBF, DotProduct, constants and white noise")


def _product(a: _Share, b: _Share) -> _Share:
    if a.kernel is None or b.kernel is None:
        return _Share(a.times * b.times, b.kernel if a.kernel is None else a.kernel)
    if isinstance(a.kernel, Gaussian) and isinstance(b.kernel, Gaussian):
        return _Share(a.times * b.times, Gaussian(a.kernel.rates + b.kernel.rates))
    raise NotRead("its kernel is a product of DotProduct and another")
