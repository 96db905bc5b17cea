"""Products of kernel values at landmarks, summed over all pairs of rows of which one lends the other a feature.

For kernels that are sums of products of a function of the feature and one of the other columns, the sum over all
n(n-1) pairs factors into products of two small matrices, so nothing is ever evaluated pair by pair.
"""

from __future__ import annotations

import numpy as np

from reliance._core.arrays import namespace, to_host
from reliance._core.kinds import Array
from reliance.rashomon.kernel_pairs import Factors, Kernel, Switch
from reliance.samplers.draws import Host, upload

# Directions of a factor with less of its largest singular value are rounding.
_LEAST_SINGULAR = 1e-15
# Combinations of columns that are tried as all there is of them, and what may be missing then: rounding.
_PROBES, _MISSED = 48, 4e-15
# The share of a factor that plain products of columns may have, times the root of how much more the rotation enlarges
# some functions than others: with 1 their rounding would be as large as that of the careful form.
_SMALL = 1.0
# Rows of products of two factors that are made at a time: large products are fast.
_PAIRED = 512
# Numbers held at a time beside a block of kernel values: the rows, the values, their rotation.
_COPIES = 4


def pair_products(
    kernel: Kernel, switch: Switch, landmarks: Array, axes: Host, y: Array, *, memory: int, own: Host
) -> Host:
    """Means over all n(n-1) pairs of the products of the columns (y, 1, kernel values at switched rows @ axes).

    Parameters
    ----------
    kernel : Kernel
        With a method ``factors(switch, landmarks)`` that returns factors: O(n m^2). Otherwise O(n^2 m^2), in blocks.
    switch : Switch
    landmarks : array (m, P)
    axes : (m, r), on the host
    y : array (n,)
    memory : int
        Bytes that a block may take.
    own : array (2 + r, 2 + r), on the host
        The sums of these products over the rows as they are.

    Returns
    -------
    array (2 + r, 2 + r), on the host
    """
    n, factors = int(y.shape[0]), getattr(kernel, "factors", lambda *_: None)(switch, landmarks)
    total = _by_blocks(kernel, switch, landmarks, axes, y, memory) if factors is None else _by_factors(factors, axes, y)
    return np.asarray((total - own) / (n * (n - 1)))  # a row with itself as donor is the row


def own_products(values: Array, y: Array) -> Host:
    """Sums over the rows of the products of the columns (y, 1, functions)."""
    columns = _with_label(values, y)
    return to_host(namespace(y).matrix_transpose(columns) @ columns)


def _by_factors(factors: Factors, axes: Host, y: Array) -> Host:
    """Sums of products over all n^2 pairs of the columns (y, 1, functions), each a sum of products of factors."""
    return _by_one_factor(factors[0], axes, y) if len(factors) == 1 else _by_several(factors, axes, y)


def _by_one_factor(factor: tuple[Array, Array], axes: Host, y: Array) -> Host:
    """`_by_several` of a single product B A, for less than a QR decomposition of B costs.

    Both are split into a part S of low rank and a small rest E: B'B = S'S + E'E. Only the products of the two parts of
    low rank need the careful form. For the others, which are smaller by the square of what is small in E, products of
    columns keep enough digits, though the rotation enlarges their rounding by the square of what it does otherwise.
    """
    xp = namespace(y)
    ones, label = xp.ones_like(y)[:, None], xp.reshape(y, (-1, 1))
    size = float(np.sqrt(to_host(xp.mean(y * y)))) or 1.0  # y as large as 1, so that nothing is small beside it
    sizes = np.linalg.norm(axes, axis=0)
    small = _SMALL * float(np.sqrt(np.min(sizes) / np.max(sizes)))
    rest, rest_left = _split(xp.concat([label / size, ones, factor[0]], axis=1), small, _PROBES)
    lent, lent_left = _split(xp.concat([ones, ones, factor[1]], axis=1), small, _PROBES // 2)
    rotation = np.zeros((2 + axes.shape[0], 2 + axes.shape[1]))
    rotation[0, 0], rotation[1, 1], rotation[2:, 2:] = size, 1.0, axes
    plain = (rest.T @ rest) * lent_left + rest_left * (lent.T @ lent + lent_left)
    total = rotation.T @ (plain @ rotation)
    many = max(_PAIRED // max(len(lent), 1), 1)
    for start in range(0, len(rest), many):
        part = np.reshape(rest[start : start + many, None, :] * lent, (-1, len(rotation))) @ rotation
        total += part.T @ part
    return np.asarray((total + total.T) / 2)


def _split(columns: Array, small: float, many: int) -> tuple[Host, Host]:
    """S (k, columns) and E'E (columns, columns) with columns'columns = S'S + E'E, E being a small share of the columns.

    E is what is left of the columns when their projections on some random combinations of them are taken away, and
    those of these projections that are small.
    """
    xp, (n, width) = namespace(columns), columns.shape
    whole, turned = _norm(columns), xp.matrix_transpose
    while 4 * many <= min(n, width):
        probes = upload(np.random.default_rng(0).normal(size=(width, many)), columns)
        basis = xp.linalg.qr(columns @ probes)[0]
        short = turned(basis) @ columns
        left = columns - basis @ short
        missed = _norm(left)
        if missed <= small * whole:
            _, spread, right = np.linalg.svd(to_host(short), full_matrices=False)
            directions, kept = spread[:, None] * right, spread > small * spread[0]
            more = directions[~kept].T @ directions[~kept]
            if missed > _MISSED * whole:
                more = more + to_host(turned(left) @ left)
            return directions[kept], more
        many *= 2
    return _triangular(columns, False), np.zeros((width, width))


def _norm(columns: Array) -> float:
    return float(np.sqrt(to_host(namespace(columns).sum(columns * columns))))


def _by_several(factors: Factors, axes: Host, y: Array) -> Host:
    r"""The products of each pair of factors together, in their careful form.

    For one factor (B, A): :math:`\sum_{ik} B_{il} A_{kl} B_{im} A_{km} = (B'B) \circ (A'A)`. That is the Gram matrix of
    the columns' Kronecker products of triangular factors of B and A, and it is taken in this form: the rotation into
    orthonormal functions would enlarge the rounding of the other by the inverse of the least eigenvalue.
    """
    xp = namespace(y)
    ones, none = xp.ones_like(y)[:, None], xp.zeros_like(y)[:, None]
    # y and 1 are products, too: (y, 1) of the row and (1, 1) of the donor, in the first of the factors.
    rest, lent = [y[:, None], ones], [ones, ones]
    for t, (B, A) in enumerate(factors):
        rest += [B] if t == 0 else [none, none, B]
        lent += [A] if t == 0 else [none, none, A]
    width = 2 + axes.shape[0]
    kept, given = (np.split(_triangular(xp.concat(x, axis=1), True), len(factors), axis=1) for x in (rest, lent))
    rotation = np.zeros((width, 2 + axes.shape[1]))
    rotation[:2, :2], rotation[2:, 2:] = np.eye(2), axes
    total = np.zeros((rotation.shape[1],) * 2)
    many = max(_PAIRED // max(given[0].shape[0], 1), 1)
    for start in range(0, kept[0].shape[0], many):  # some rows of the rest's factor at a time
        used = int(np.argmax(np.any([a[start : start + many].any(axis=0) for a in kept], axis=0)))
        products = sum(a[start : start + many, None, used:] * b[:, used:] for a, b in zip(kept, given, strict=True))
        part = np.reshape(products, (-1, width - used)) @ rotation[used:]
        total += part.T @ part
    return total


def _by_blocks(kernel: Kernel, switch: Switch, landmarks: Array, axes: Host, y: Array, memory: int) -> Host:
    """The same sums by evaluating the kernel for every pair."""
    xp, n = namespace(y), int(y.shape[0])
    turn = upload(axes, y)
    size = 8 * n * _COPIES * (sum(axes.shape) + switch.kept.shape[1])
    rows = max(memory // size, 1)
    total = np.zeros((2 + axes.shape[1],) * 2)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        values = kernel(switch.block(start, stop), landmarks) @ turn
        labels = xp.reshape(xp.broadcast_to(y[start:stop, None], (stop - start, n)), (-1,))
        columns = _with_label(values, labels)
        total += to_host(xp.matrix_transpose(columns) @ columns)
    return total


def _with_label(values: Array, y: Array) -> Array:
    """The columns (y, 1, functions)."""
    xp = namespace(y)
    return xp.concat([y[:, None], xp.ones_like(y)[:, None], values], axis=1)


def _triangular(columns: Array, dependent: bool) -> Host:
    """R (rank, columns) with R'R = columns'columns: of low rank if it has one, otherwise triangular."""
    host = columns if isinstance(columns, np.ndarray) else None
    short = None if host is None else _low_rank(host)
    if short is not None:
        return short
    factor: Array = columns
    if columns.shape[0] > columns.shape[1]:
        factor = namespace(columns).linalg.qr(columns)[1] if host is None else np.asarray(np.linalg.qr(host, mode="r"))
    return _truncated(to_host(factor)) if dependent else to_host(factor)


def _truncated(factor: Host) -> Host:
    """The same products without directions that are rounding."""
    _, sizes, right = np.linalg.svd(factor, full_matrices=False)
    kept = sizes > _LEAST_SINGULAR * sizes[0]
    return np.asarray(sizes[kept, None] * right[kept])


def _low_rank(columns: Host) -> Host | None:
    """R (rank, columns) if some combinations of the columns span all of them to rounding; None otherwise.

    One column's part of a kernel is smooth and has a rank of about 20, whatever the landmarks: that is found for less
    than a QR decomposition costs.
    """
    n, width = columns.shape
    if min(n, width) <= 2 * _PROBES:
        return None
    some = columns[:: max(n // (4 * _PROBES), 1)]  # what a few rows do not have, all rows do not have
    return None if _spanned(some) is None else _spanned(columns)


def _spanned(columns: Host) -> Host | None:
    probes = np.random.default_rng(0).normal(size=(columns.shape[1], _PROBES))
    basis = np.linalg.qr(columns @ probes)[0]
    short = basis.T @ columns
    missed = np.linalg.norm(columns - basis @ short)
    return _truncated(short) if missed <= _MISSED * np.linalg.norm(columns) else None
