"""Importance on training data beside importance on test data: what the model uses, and what of it generalises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import listed, shown
from reliance.data import tables
from reliance.data.clusters import ClustersLike
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.methods.growth import check_no_end
from reliance.methods.replacement import model_reliance
from reliance.results.importance import Importance
from reliance.results.splits import SplitComparison

Floats = NDArray[np.float64]
# X, y and perhaps weights and clusters.
Split: TypeAlias = (
    tuple[DataLike, DataLike | None]
    | tuple[DataLike, DataLike | None, DataLike | None]
    | tuple[DataLike, DataLike | None, DataLike | None, ClustersLike | None]
)


@public
def compare_splits(
    model: ModelLike,
    *,
    train: Split,
    test: Split,
    pairs: str | int = 20,
    loss: LossLike | None = None,
    compare: str = "ratio",
    route: str = "auto",
    features: FeaturesLike = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> SplitComparison:
    """Importances of a model on training data and on test data, and their differences.

    On the training data an importance says what the model has learned to use; on test data, what of that helps to
    predict. Where the two differ, the model overfits with the feature.

    Parameters
    ----------
    model : callable, scikit-learn estimator or torch.nn.Module
        As fitted to the training data.
    train, test : tuples (X, y), (X, y, weights) or (X, y, weights, clusters)
        The two sets of rows, which must have no row in common. For ``loss="prediction_shift"`` y may be None, and so
        may weights. ``clusters`` are those of `permutation_importance`; the two sets must have no cluster in common.
    loss : str, callable or Metric, optional
        One loss, by default the one that fits the model: log loss for a classifier with probabilities, zero-one for one
        without, squared error for a regressor or a function of numbers. Names and functions are those of
        `permutation_importance`.

    Returns
    -------
    SplitComparison
        ``on_train`` and ``on_test`` are `Importance`; ``values``, ``interval()`` and ``test()`` are about the training
        minus the test importance.

    Notes
    -----
    The model is taken as fixed in both sets. The interval on the training data is about those rows: it does not know
    that the model was chosen to fit them, and this is what the difference shows.

    References
    ----------
    Molnar, C. Interpretable machine learning, section 7.5.2.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=400)
    >>> both = rl.compare_splits(lambda X: X[:, 0], train=(X[:200], y[:200]), test=(X[200:], y[200:]), rng=0)
    >>> bool(both.on_train.values[0] > 2), bool(both.on_test.values[0] > 2), both.values[1:].tolist()
    (True, True, [0.0, 0.0])
    """
    if isinstance(loss, list | tuple):
        raise ValueError(f"loss={shown(loss)} is a list: compare the splits under one loss at a time")
    found = []
    for name, split in (("train", train), ("test", test)):
        if not isinstance(split, tuple | list) or not 2 <= len(split) <= 4:
            what = f"{len(split)} entries" if isinstance(split, tuple | list) else type(split).__name__
            raise TypeError(f"{name} must be a tuple (X, y), (X, y, weights) or (X, y, weights, clusters), got {what}")
    _check_columns(train[0], test[0])
    check_no_end(run, "two sets of rows")
    for split in (train, test):
        weights, clusters = _companions(split)
        measured = model_reliance(
            model,
            split[0],
            split[1],
            pairs=pairs,
            loss=loss,
            compare=compare,
            route=route,
            features=features,
            weights=weights,
            clusters=clusters,
            rng=rng,
            run=run,
            progress=progress,
            names=names,
        )
        found.append(measured)
    one, other = found
    if one.names != other.names:
        few = [listed(result.names, 3) for result in found]
        raise ValueError(f"train has the features {few[0]} and test {few[1]}: they must be the same")
    return _compared(one, other)


def _companions(split: Split) -> tuple[DataLike | None, ClustersLike | None]:
    """Weights and clusters, where there are some."""
    if len(split) == 4:
        return split[2], split[3]
    return (split[2], None) if len(split) == 3 else (None, None)


def _check_columns(train: object, test: object) -> None:
    """The same columns in the same order: a model would read others' values, whatever the names that are shown."""
    are_tables = [tables.is_table(X) for X in (train, test)]
    if all(are_tables):
        first, second = tables.column_labels(train), tables.column_labels(test)
        if first == second:
            return
        if sorted(map(str, first)) == sorted(map(str, second)):
            raise ValueError("the X of train and test have the same columns in different orders: reorder one of them")
        parts = [f"{side} alone has {listed(only, 3)}" for side, only in _only(first, second) if only]
        raise ValueError(f"the X of train and test have different columns: {'; '.join(parts)}")
    if any(are_tables):
        raise TypeError("the X of train and test are a table and an array: pass both as tables, or both as arrays")
    widths = [tuple(X.shape[1:]) for X in (train, test) if arrays.is_array(X)]
    if len(set(widths)) > 1:
        raise ValueError(
            f"the rows of train have shape {widths[0]}, those of test {widths[1]}: they must have the same features"
        )


def _only(first: list[str], second: list[str]) -> list[tuple[str, list[str]]]:
    return [
        ("train", [name for name in first if name not in second]),
        ("test", [name for name in second if name not in first]),
    ]


def _compared(train: Importance, test: Importance) -> SplitComparison:
    first, second = train.std_error**2, test.std_error**2
    variance = first + second
    df = [one.degrees_of_freedom for one in (train, test)]
    freedom = inference.satterthwaite([first, second], df)
    return SplitComparison(train, test, train.names, train.values - test.values, np.sqrt(variance), freedom)
