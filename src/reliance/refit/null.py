"""Is an importance more than chance gives? The same algorithm on permuted labels (PIMP)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray

from reliance._core import arrays, streams
from reliance._core.checks import check_choice, check_draws
from reliance._core.kinds import Array, Operand
from reliance._core.progress import Progress, reporting
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import listed
from reliance.data.checked_arrays import as_array
from reliance.data.features import column_names
from reliance.data.passed import DataLike, FeaturesLike, FitLike, RowsLike
from reliance.methods.replacement import permutation_importance
from reliance.methods.signatures import Permuting
from reliance.models.calling import name_of
from reliance.refit import running, splits
from reliance.refit.judged import judged_rows
from reliance.refit.running import Task
from reliance.results.importance import Importance
from reliance.results.null import NullImportance

Floats = NDArray[np.float64]
# Of a model, X and y: what it returns is looked at.
Measure: TypeAlias = Callable[[Operand, Operand, Operand], object]


@public
def null_importance(
    fit: FitLike,
    X: DataLike,
    y: DataLike,
    *,
    rounds: int = 100,
    importance: str | Measure = "permutation_importance",
    features: FeaturesLike = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
    **options: Unpack[Permuting],
) -> NullImportance:
    r"""Importances against those of models fitted on permuted labels (PIMP).

    The algorithm is fitted on X and y, and in R rounds on X and a random permutation of y, which breaks every relation
    of labels and features but leaves those among features. With s_j the importance of feature j, and s_{jr} in round r:

    .. math:: p_j = \frac{1 + \#\{r : s_{jr} \ge s_j\}}{R + 1}

    It corrects measures that favour some features by their form, such as the impurity importance of forests, which
    favours features of many values.

    Parameters
    ----------
    fit : callable or scikit-learn estimator
        ``fit(X, y) -> model``, or an estimator, which is cloned.
    X, y : arrays (n, ...), (n, ...)
        The importances are measured on these rows, which the model was fitted on, in every round alike.
    rounds : int
        R. The smallest empirical p-value is 1/(R + 1).
    importance : "permutation_importance" or callable
        ``importance(model, X, y) -> (p,)``, or an `Importance`, of the rows and the labels that the model was fitted
        on; for instance ``lambda model, X, y: model.feature_importances_``. By default `permutation_importance`.
    features : optional
        What to measure: None for each column; a list of indices, names or tuples of them as groups; a mapping from
        names to columns. Not for an importance of your own.
    names : sequence of str, optional
        Names of the columns; of an importance of your own, of its p entries.
    rng : int, SeedSequence or Generator, optional
        For the permutations, and for the draws of permutation importance, which are the same in all rounds.
    **options
        ``loss``, ``draws``, ``compare``, ``weights`` and so on, of `permutation_importance`. Weights count the losses
        of the rows; ``fit`` does not get them.

    Returns
    -------
    NullImportance
        ``.test(method, adjust)`` has empirical p-values, and those of fitted normal, lognormal and gamma distributions,
        with false discovery rates.

    Raises
    ------
    RefitError
        If a round fails. The others run to their end, and ``error.result`` is theirs; its p-values are valid.

    Notes
    -----
    The null hypothesis is that the labels are independent of all features together. Where other features carry signal
    the permutation takes it away, too, so a feature without effect is compared with models of another kind than the
    one at hand: p-values are exact if nothing matters, a screening otherwise.

    References
    ----------
    Altmann, A., Tolosi, L., Sander, O., Lengauer, T. (2010). Permutation importance: a corrected feature importance
    measure. Bioinformatics 26, 1340-1347.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=100)
    >>> def fit(X, y):
    ...     coef = np.linalg.lstsq(X, y)[0]
    ...     return lambda X: X @ coef
    >>> result = rl.null_importance(fit, X, y, rounds=39, draws=5, rng=0)
    >>> result.test(adjust="none").p_value[0].item()
    0.025
    """
    running.check_fit(fit)
    count = check_draws(rounds, "rounds")
    own = callable(importance)
    if not own:
        check_choice(importance, ("permutation_importance",), "importance")
    if own and (options or features is not None):
        given = next(iter(options), "features")
        raise ValueError(f"{given} is given, but importance is a function of your own, which does not get it")
    running.check_workers(run, {"fit": fit, "importance": importance, "options": options})
    if y is None:
        raise ValueError("y is None: an algorithm needs labels to fit")
    named = None if own else names
    judged = judged_rows(fit, X, y, features, options.get("loss"), options.get("weights"), named)
    rows, labels, key = splits.as_rows(X, "X"), as_array(y, "y"), resolve_key(rng)
    data = Null(fit, importance if callable(importance) else None, rows, labels, features, named, key, options)
    tasks = [Task("on the labels as they are", functools.partial(importances_of, data, None, key), True)]
    tasks += [Task(f"round {r}", functools.partial(importances_of, data, r, key)) for r in range(count)]
    with reporting(progress, len(tasks), "fits") as advance:
        outcome = running.run(tasks, run, advance)
    result = _result(outcome.answers, data, names, judged.rows.n, key)
    running.check_finished(outcome, result)
    assert result is not None
    return result


class Null(NamedTuple):
    """What every round needs; it can be sent to another process."""

    fit: FitLike
    importance: Measure | None
    X: RowsLike
    y: Array
    features: FeaturesLike
    names: Sequence[str] | None
    key: int
    options: Permuting


class Scores(NamedTuple):
    """Importances of one fit, and their names where they are known."""

    values: Floats
    names: tuple[str, ...] | None


def importances_of(data: Null, turn: int | None, key: int) -> Scores:
    """Fit on the labels as they are, or permuted for a round, and measure on the same rows and labels."""
    n = int(data.y.shape[0])
    order = np.arange(n) if turn is None else streams.stream(key, streams.LABELS, turn).permutation(n)
    X, y = splits.take(data.X, np.arange(n)), splits.take(data.y, order)
    model = running.fitted(data.fit, X, y)
    found: object
    if data.importance is None:
        found = permutation_importance(
            model, data.X, y, features=data.features, names=data.names, rng=data.key, **data.options
        )
    else:
        # What the function, or the fit, does to its data stays in its round.
        found = data.importance(model, splits.take(data.X, np.arange(n)), splits.take(y, np.arange(n)))
    if isinstance(found, Importance):
        return Scores(found.values, found.names)
    if isinstance(found, Mapping):
        raise TypeError("loss is a list: null importances are of one loss; run it for each")
    values = np.asarray(arrays.to_host(found) if arrays.is_array(found) else found, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        what = f"shape {values.shape}" if values.ndim != 1 else "NaN or infinite values"
        raise ValueError(f"importance={name_of(data.importance)} returned {what}: return one finite number a feature")
    return Scores(values, None)


def _result(
    answers: dict[int, Scores], data: Null, names: Sequence[str] | None, n: int, key: int
) -> NullImportance | None:
    rounds = [answers[k].values for k in sorted(answers) if k > 0]
    if 0 not in answers or not rounds:
        return None
    observed = answers[0]
    sizes = {scores.size for scores in (observed.values, *rounds)}
    if len(sizes) > 1:
        raise ValueError(
            f"importance={name_of(data.importance)} returned {listed(sorted(sizes))} numbers in different rounds"
        )
    width = observed.values.size
    if isinstance(names, list | tuple) and len(names) != width:
        raise ValueError(f"names has {len(names)} entries, but importance={name_of(data.importance)} returned {width}")
    labels = observed.names or column_names(names, (width,))
    measure = name_of(data.importance) if data.importance else "permutation_importance"
    return NullImportance(labels, observed.values, np.stack(rounds, axis=1), n, key, measure)
