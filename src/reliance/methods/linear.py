"""Coefficients of a linear model on comparable scales: the simplest importance there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays
from reliance._core.checks import check_choice
from reliance._core.kinds import Array
from reliance._core.public import public
from reliance._core.words import shown
from reliance.data import rows as data
from reliance.data.passed import DataLike, FeaturesLike, ModelLike
from reliance.data.rows import Rows
from reliance.models import calling
from reliance.results.linear import LinearImportance

Floats = NDArray[np.float64]
SCALES = ("range", "deviation")


@public
def linear_importance(
    model: ModelLike | None,
    X: DataLike,
    y: DataLike | None = None,
    *,
    scale: str = "range",
    features: FeaturesLike = None,
    names: Sequence[str] | None = None,
) -> LinearImportance:
    r"""The coefficients of a linear model, on features scaled to [0, 1] and on standardised features.

    .. math:: |b_j| (\max_i x_{ij} - \min_i x_{ij}) \qquad \text{or} \qquad |b_j| \sigma(x_j)

    Without scaling a feature of tiny values, whose coefficient is huge, would always look important.

    Parameters
    ----------
    model : linear model, or None
        A linear regressor or classifier of scikit-learn with one output, a pipeline of StandardScaler and a linear
        regressor, or `models.Linear`. None: least squares with intercept, fitted to X and y here.
    X : array (n, p)
        Rows that the scales are taken from. NumPy, CuPy, JAX or torch.
    y : array (n,), optional
        Labels, for ``model=None`` only.
    scale : {"range", "deviation"}
        Which scale ``values`` are on; the result has both.
    features : list of indices or names, optional
        Which columns; by default all. A group has no one coefficient.

    Returns
    -------
    LinearImportance

    References
    ----------
    Rudin, C. Variable importance, Duke course notes, question 1.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.array([[0.0, 0.001], [2.0, 0.0], [4.0, 0.002]])
    >>> rl.linear_importance(rl.models.Linear(np.array([1.0, 100.0])), X).values.tolist()
    [4.0, 0.2]
    """
    check_choice(scale, SCALES, "scale")
    if model is not None and y is not None:
        raise ValueError("y is given with a model, whose coefficients are known: pass model=None to fit least squares")
    if model is None and y is None:
        raise ValueError("model is None and y is None: pass a linear model, or y to fit least squares to")
    rows = data.read(X, y, features=features, names=names)
    if len(rows.shape) != 1:
        raise ValueError(f"X has rows of shape {rows.shape}: a linear model takes rows of one dimension")
    numbers = rows.numbers("linear_importance")
    low, high, deviation = _scales(rows, numbers)  # which finds NaN, before anything is fitted to it
    coef = _least_squares(rows, numbers) if model is None else _coefficients(model, int(numbers.shape[1]))
    columns = []
    for feature in rows.features:
        if len(feature.columns) > 1:
            raise ValueError(
                f"features: {shown(feature.name)} is a group, which has no one coefficient: name its columns"
            )
        columns.append(feature.columns[0])
    own = coef[columns]
    return LinearImportance(
        names=tuple(feature.name for feature in rows.features),
        coefficients=own,
        by_range=own * (high - low)[columns],
        by_deviation=own * deviation[columns],
        scale=scale,
        n=rows.n,
    )


def _coefficients(model: object, width: int) -> Floats:
    form = calling.linear_form(model)
    found = getattr(model, "coef_", None) if form is None else form[0]
    if found is None:
        raise TypeError(
            f"model {calling.name_of(model)} has no coefficients that can be read: pass a fitted linear model, "
            "rl.models.Linear, or model=None and y"
        )
    coef = np.asarray(arrays.to_host(found) if arrays.is_array(found) else found, dtype=np.float64)
    if coef.ndim == 2 and coef.shape[0] == 1:
        coef = coef[0]
    if coef.shape != (width,):
        raise ValueError(
            f"model {calling.name_of(model)} has coefficients of shape {coef.shape}, but X has {width} columns: one "
            "coefficient a column is needed (of several outputs, pass one as rl.models.Linear)"
        )
    return coef


def _least_squares(rows: Rows, numbers: Array) -> Floats:
    X = np.asarray(arrays.to_host(numbers), dtype=np.float64)
    labels = arrays.to_host(rows.y)
    if labels.dtype.kind not in "biuf":
        raise TypeError(f"y has dtype {labels.dtype}: least squares are fitted to numbers; encode the labels")
    y = np.asarray(labels, dtype=np.float64)
    if y.shape != (rows.n,):
        raise ValueError(f"y has shape {y.shape}: least squares are fitted to one number a row, ({rows.n},)")
    centred = X - X.mean(axis=0)
    # In units of their deviations, so that what counts as dependent does not depend on the columns' units.
    spread = np.where(np.ptp(X, axis=0) > 0.0, centred.std(axis=0), 1.0)
    coef, _, rank, _ = np.linalg.lstsq(centred / spread, y - y.mean(), rcond=None)
    if rank < X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns of which {rank} are linearly independent: its least squares coefficients are "
            "not determined; drop columns (a constant one, for instance) or pass a penalised model"
        )
    return np.asarray(coef / spread)


def _scales(rows: Rows, numbers: Array) -> tuple[Floats, Floats, Floats]:
    """Minimum, maximum and standard deviation of each column."""
    xp = rows.xp
    wide = xp.astype(numbers, arrays.sum_dtype(xp, rows.device), copy=False)
    (finite,) = arrays.fetch([xp.all(xp.isfinite(wide), axis=0)])
    if not finite.all():
        name = rows.names[int(np.argmin(finite))]
        raise ValueError(
            f"X holds NaN or infinite values in column {shown(name)}: its range is not known; drop those rows"
        )
    found = arrays.fetch([xp.min(wide, axis=0), xp.max(wide, axis=0), xp.std(wide, axis=0)])
    low, high, deviation = (np.asarray(a, dtype=np.float64) for a in found)
    return low, high, deviation
