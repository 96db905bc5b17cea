"""How far rows with a replaced feature lie from the data: where they do, the model is asked what it never learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reliance import plans
from reliance._core import arrays, streams
from reliance._core.checks import check_choice, warn
from reliance._core.kinds import Array, Operand
from reliance._core.public import public
from reliance._core.streams import Indices, RandomState
from reliance._core.words import listed, shown
from reliance.data import rows as data
from reliance.data.passed import DataLike, FeaturesLike, Fits
from reliance.data.rows import Rows
from reliance.results.extrapolation import Extrapolation

Floats = NDArray[np.float64]
METHODS = ("neighbours", "classifier")
# Above these a feature is warned about: conventions, where rows of independent features have 1 and 0.5.
LIMITS = {"neighbours": 1.25, "classifier": 0.65}
# How many standard errors the area under the curve of few rows must be above 0.5, too, so that chance hardly ever is:
# the folds' classifiers share rows, which made the spread of independent columns 1.1 to 1.25 times the formula's.
_CHANCE = 4.0
_CELLS = 2**21  # distances held at a time


class Classifier(Fits, Protocol):
    """A classifier of scikit-learn that has probabilities."""

    def predict_proba(self, X: Operand, /) -> Operand: ...


@public
def extrapolation_check(
    X: DataLike,
    *,
    features: FeaturesLike = None,
    method: str = "neighbours",
    rows: int = 1000,
    limit: float | None = None,
    classifier: Classifier | None = None,
    folds: int = 5,
    rng: RandomState = None,
    names: Sequence[str] | None = None,
) -> Extrapolation:
    """How unlike the data rows become when a feature is replaced, for each feature or group.

    Importance by replacement asks the model about rows with a feature of another row. If features depend on each
    other, such rows may be far from every real one (a person of 2 metres and 30 kg), and what the model says of them
    is extrapolation.

    Parameters
    ----------
    X : array (n, ...)
        The rows: NumPy, CuPy, JAX or torch. The model does not matter.
    method : {"neighbours", "classifier"}
        "neighbours": distances to the nearest row that is neither the row itself nor its donor, columns divided by
        their standard deviations; for few columns. "classifier": how well a classifier tells replaced rows from real
        ones; needs scikit-learn, works with many columns and fits a model per feature and fold.
    rows : int
        How many rows are replaced at most, chosen at random. "neighbours" compares each with all n; "classifier" takes
        as many other rows as they are, so it replaces at most n / 2.
    limit : float, optional
        Features above it are warned about; by default 1.25 (neighbours) or 0.65 (classifier; more for so few rows that
        chance exceeds it more than once in 1000).
    classifier : scikit-learn classifier, optional
        With ``predict_proba``; cloned. By default gradient boosting of small trees.
    folds : int
        Of the cross-validation. No row is both taken as it is and replaced, and donors are rows of the same fold, so
        that a fold shares no value with the rows the classifier was fitted on.
    rng : int, SeedSequence or Generator, optional

    Returns
    -------
    Extrapolation

    References
    ----------
    Hooker, G., Mentch, L. (2019). Please stop permuting features. arXiv:1905.03151.

    Examples
    --------
    >>> import numpy as np, reliance as rl, warnings
    >>> x = np.random.default_rng(0).normal(size=(400, 3))
    >>> X = np.column_stack([x[:, 0], x[:, 0] + 0.05 * x[:, 1], x[:, 2]])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     rl.extrapolation_check(X, rng=0).beyond
    ('x0', 'x1')
    >>> rl.extrapolation_check(x, rng=0).beyond
    ()
    """
    check_choice(method, METHODS, "method")
    _check_numbers(rows, limit, folds, method, classifier)
    known, key = data.read(X, features=features, names=names), streams.resolve_key(rng)
    scaled = _scaled(known)
    order, outside, least = streams.ordering(key, known.n, 0), None, LIMITS[method]
    if method == "neighbours":
        chosen = np.sort(order[: int(rows)])
        donors = plans.Shifts(known.n, 1, key).donors(range(known.n), range(1))[chosen, 0]
        values, outside = _distance_ratios(known, scaled, chosen, donors)
    else:
        chosen = order[: min(int(rows), known.n // 2)]
        deal = _deal(chosen, order[len(chosen) : 2 * len(chosen)], int(folds))
        values = _areas(known, deal, classifier)
        least = max(least, 0.5 + _CHANCE * _chance_error(deal))
    result = Extrapolation(
        names=tuple(feature.name for feature in known.features),
        values=values,
        outside=outside,
        method=method,
        limit=least if limit is None else float(limit),
        n=known.n,
        rows=len(chosen),
        key=key,
    )
    if result.beyond:
        warn(
            f"replacing {listed(result.beyond)} makes rows unlike those of X: importances of these features "
            "rest on what the model says where it has seen no data; conditional_model_reliance, or relative_importance "
            "with given='rest', keeps to the data"
        )
    return result


def _check_numbers(rows: object, limit: object, folds: object, method: str, classifier: object) -> None:
    for name, value, least in (("rows", rows, 2), ("folds", folds, 2)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name}={shown(value)}: pass an integer of at least {least}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, float | int) or not limit > 0):
        raise ValueError(f"limit={shown(limit)}: pass a positive number, or None for the default")
    if classifier is not None and method != "classifier":
        raise ValueError("classifier is given but method='neighbours' uses none: pass method='classifier'")
    if classifier is not None and not hasattr(classifier, "predict_proba"):
        raise TypeError(f"classifier={shown(classifier)} has no predict_proba: pass a scikit-learn classifier that has")


def _scaled(rows: Rows) -> Array:
    """(n, P): the columns over their standard deviations, constant ones 0, in the widest dtype."""
    if rows.n < 4:
        raise ValueError(f"X has {rows.n} rows: a row, its donor and others to be near need at least 4")
    xp = rows.xp
    wide = xp.astype(rows.numbers("extrapolation_check"), arrays.sum_dtype(xp, rows.device), copy=False)
    (finite,) = arrays.fetch([xp.all(xp.isfinite(wide))])
    if not bool(finite):
        raise ValueError("X holds NaN or infinite values, which have no distance: fill or drop them")
    centred = wide - xp.mean(wide, axis=0)
    spread = xp.std(wide, axis=0)
    varies = spread > 0.0
    return xp.where(varies, centred / xp.where(varies, spread, xp.ones_like(spread)), xp.zeros_like(centred))


def _distance_ratios(rows: Rows, scaled: Array, chosen: Indices, donors: Indices) -> tuple[Floats, Floats]:
    """Of each feature the ratio of mean nearest distances, and the share beyond 95% of the rows' own."""
    xp, dev, n = rows.xp, rows.device, rows.n
    every = xp.arange(n, dtype=arrays.index_dtype(xp), device=dev)
    step, parts = max(_CELLS // n, 1), []
    for start in range(0, len(chosen), step):
        own, lent = (
            arrays.from_host(ids[start : start + step], xp, dev, arrays.index_dtype(xp)) for ids in (chosen, donors)
        )
        a, b = xp.take(scaled, own, axis=0), xp.take(scaled, lent, axis=0)
        squares = _squares(a, scaled, range(int(scaled.shape[1])))
        far = xp.full_like(squares, float("inf"))
        itself = own[:, None] == every[None, :]
        either = xp.logical_or(itself, lent[:, None] == every[None, :])
        lines = [xp.min(xp.where(itself, far, squares), axis=1)]
        for feature in rows.features:  # only the feature's own part of the distances changes
            moved = squares - _squares(a, scaled, feature.columns) + _squares(b, scaled, feature.columns)
            lines.append(xp.min(xp.where(either, far, moved), axis=1))
        parts.append(arrays.to_host(xp.stack(lines)))
    # What was subtracted may leave less than 0 of a distance that is 0.
    distances = np.sqrt(np.maximum(np.concatenate(parts, axis=1).astype(np.float64), 0.0))
    real, replaced = distances[0], distances[1:]
    means, reference = replaced.mean(axis=1), real.mean()
    if reference == 0.0:  # every row has a twin
        ratios = np.where(means > 0.0, np.inf, 1.0)
    else:
        ratios = means / reference
    return ratios, np.mean(replaced > np.quantile(real, 0.95), axis=1)


def _squares(a: Array, rows: Array, columns: Sequence[int]) -> Array:
    """``(b, n)``: squared distances in some columns, by differences."""
    first = columns[0]
    total = (a[:, first][:, None] - rows[:, first][None, :]) ** 2
    for column in columns[1:]:
        total = total + (a[:, column][:, None] - rows[:, column][None, :]) ** 2
    return total


class _Fold(NamedTuple):
    """Rows that stay as they are, rows that are replaced, and the donors of these."""

    real: Indices
    replaced: Indices
    donors: Indices


def _deal(replaced: Indices, real: Indices, folds: int) -> list[_Fold]:
    """Folds that share no row, be it real, replaced or a donor: what one says of another is then not about itself."""
    if 2 * folds > len(replaced):
        raise ValueError(
            f"folds={folds} is too many for {len(replaced)} replaced rows, which need a donor in their fold: pass at "
            f"most {len(replaced) // 2} folds, or more rows"
        )
    parts = [(real[k::folds], replaced[k::folds]) for k in range(folds)]
    return [_Fold(own, other, np.roll(other, 1)) for own, other in parts]


def _chance_error(deal: Sequence[_Fold]) -> float:
    """The standard error of the mean area if real and replaced rows are alike (that of Mann and Whitney's test)."""
    variances = [(a + b + 1) / (12 * a * b) for a, b in ((len(fold.real), len(fold.replaced)) for fold in deal)]
    return float(np.sqrt(np.sum(variances))) / len(deal)


def _areas(known: Rows, deal: Sequence[_Fold], classifier: Classifier | None) -> Floats:
    """Cross-validated areas under the curve of real against replaced rows."""
    try:
        from sklearn.base import clone
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import roc_auc_score
    except ImportError as error:
        raise ImportError(
            "method='classifier' needs scikit-learn, which is not installed: pip install scikit-learn"
        ) from (error)
    if classifier is None:
        classifier = HistGradientBoostingClassifier(max_leaf_nodes=8, early_stopping=False, random_state=0)
    every = np.asarray(arrays.to_host(known.flat), dtype=np.float64)
    found = []
    for feature in known.features:
        columns, rows, labels, areas = list(feature.columns), [], [], []
        for fold in deal:
            replaced = every[fold.replaced]
            replaced[:, columns] = every[fold.donors][:, columns]
            rows.append(np.concatenate([every[fold.real], replaced]))
            labels.append(np.repeat([0, 1], [len(fold.real), len(fold.replaced)]))
        for k in range(len(deal)):
            rest = [other for other in range(len(deal)) if other != k]
            train, label = (np.concatenate([part[other] for other in rest]) for part in (rows, labels))
            fitted = clone(classifier).fit(train, label)
            areas.append(roc_auc_score(labels[k], fitted.predict_proba(rows[k])[:, 1]))
        found.append(float(np.mean(areas)))
    return np.asarray(found)
