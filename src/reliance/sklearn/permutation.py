"""scikit-learn's ``permutation_importance``: its signature, its permutations and its answers, and intervals besides."""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from typing import Protocol, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from reliance import plans
from reliance._core.kinds import HostArray
from reliance._core.run import resolved
from reliance._core.words import short, shown
from reliance.data.passed import DataLike
from reliance.engine.problems import prepare
from reliance.methods.measuring import measure
from reliance.models.calling import Model
from reliance.results.importance import Importance
from reliance.results.mapping import Results
from reliance.sklearn import scorers
from reliance.sklearn.replay import Replay, seed_of
from reliance.sklearn.rows import Rows, read_rows
from reliance.sklearn.scorers import Reading, Scorer

# Estimators check their input at each call: few, large calls.
_CALL_ROWS = 16384
_LEVEL = 0.95

Floats: TypeAlias = NDArray[np.float64]
# Names of several scorers, or scorers by name: for these there is an answer for each.
Several: TypeAlias = list[str] | tuple[str, ...] | Mapping[str, str | Callable[..., object]]


class Bunch(Protocol):
    """What is returned for one scorer: a dict of scikit-learn's, whose entries are attributes, too."""

    importances_mean: Floats
    importances_std: Floats
    importances: Floats
    intervals: Floats
    skewed: NDArray[np.bool_]
    names: HostArray

    def __getitem__(self, name: str, /) -> HostArray: ...
    def keys(self) -> KeysView[str]: ...


class _Options(TypedDict, total=False):
    n_repeats: int
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    sample_weight: DataLike | None
    max_samples: int | float


@overload
def permutation_importance(
    estimator: object, X: DataLike, y: DataLike | None, *, scoring: str | None = None, **options: Unpack[_Options]
) -> Bunch: ...
@overload
def permutation_importance(
    estimator: object, X: DataLike, y: DataLike | None, *, scoring: Several, **options: Unpack[_Options]
) -> dict[str, Bunch]: ...
@overload
def permutation_importance(
    estimator: object, X: DataLike, y: DataLike | None, *, scoring: Callable[..., object], **options: Unpack[_Options]
) -> Bunch | dict[str, Bunch]: ...
def permutation_importance(
    estimator: object,
    X: DataLike,
    y: DataLike | None,
    *,
    scoring: str | Callable[..., object] | Several | None = None,
    n_repeats: int = 5,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    sample_weight: DataLike | None = None,
    max_samples: int | float = 1.0,
) -> Bunch | dict[str, Bunch]:
    r"""In place of ``sklearn.inspection.permutation_importance``: the same arguments, the same numbers, and intervals.

    .. math:: i_{j,k} = s - s_{j,k}

    with s the score of the data as they are and s_jk that with column j in its k-th permutation. The permutations are
    scikit-learn's own: the same ``random_state`` gives the same importances, to rounding.

    Parameters
    ----------
    estimator : object
        A fitted estimator.
    X : array or table (n, P)
        Numbers, text or objects; tables of pandas, polars and pyarrow.
    y : array (n,) or (n, outputs), or None
    scoring : str, callable, list, tuple or dict, optional
        As in scikit-learn; by default the estimator's own score.
    n_repeats : int
        Permutations of each column.
    n_jobs : int, optional
        Columns are shared out among so many workers of joblib. All repeats of a column are one batch anyhow.
    random_state : int, RandomState or None
    sample_weight : array (n,), optional
    max_samples : int or float
        Rows that are permuted: a number of them or a share, at least 2.

    Returns
    -------
    sklearn.utils.Bunch
        ``importances_mean`` (P,), ``importances_std`` (P,), ``importances`` (P, n_repeats), and ``names`` (P,),
        ``intervals`` (P, 2): 95% population intervals, nan where the scorer has neither losses of single rows nor an
        influence function that is known (accuracy, R2, squared, absolute and root mean squared error, and for two
        classes AUC and log loss have), and ``skewed`` (P,), whether the losses are so skewed that its interval may
        cover less, which a warning says when the intervals are asked for. With several scorers a dict of these by
        name.

    Notes
    -----
    With ``max_samples`` below 1, scikit-learn's importances are the score of all rows less that of the permuted ones.
    The intervals are of the score of the permuted rows, before and after: they aim at the same importance over new
    data, but need not be centred at ``importances_mean``, which has the difference between the two sets of rows in it.

    References
    ----------
    Breiman, L. (2001). Random forests. Machine Learning 45, 5-32.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from reliance.sklearn import permutation_importance
    >>> X = [[1, 9, 9], [1, 9, 9], [1, 9, 9], [0, 9, 9], [0, 9, 9], [0, 9, 9]]
    >>> y = [1, 1, 1, 0, 0, 0]
    >>> clf = LogisticRegression().fit(X, y)
    >>> result = permutation_importance(clf, X, y, n_repeats=10, random_state=0)
    >>> result.importances_mean.round(4).tolist()
    [0.4667, 0.0, 0.0]
    """
    from joblib import effective_n_jobs
    from sklearn.utils import _safe_indexing
    from sklearn.utils.parallel import Parallel, delayed

    _check_run()
    rows = read_rows(X)
    n, width = rows.array.shape
    samples = _checked_samples(max_samples, n)
    _check_repeats(n_repeats)
    replay = Replay(seed_of(random_state), n, samples)
    scorer = _checked_scorer(estimator, scoring)
    whole = samples == n
    part = rows.take(None if whole else replay.rows)
    labels = y if whole or y is None else _safe_indexing(y, replay.rows, axis=0)
    weights = sample_weight if whole or sample_weight is None else _safe_indexing(sample_weight, replay.rows, axis=0)
    readings = scorers.read_all(scorer, estimator, part, labels, weights)
    if not (n_jobs is None or isinstance(n_jobs, int | np.integer)):
        raise TypeError(f"n_jobs={shown(n_jobs)}: pass an integer, or None")
    shares = np.array_split(np.arange(width), min(effective_n_jobs(n_jobs), width))
    found = Parallel(n_jobs=n_jobs)(
        delayed(_measured)(estimator, part, readings, weights, replay, n_repeats, share) for share in shares
    )
    # With all rows the score of the data as they are is that of the base pass; otherwise it is that of all rows.
    offsets = dict.fromkeys(readings, 0.0)
    if not whole:
        every = _scores(scorer, estimator, rows.given, y, sample_weight)
        some = _scores(scorer, estimator, part.given, labels, weights)
        offsets = {name: every[name] - some[name] for name in every}
    bunches = {name: _bunch([results[name] for results in found], offsets[name], rows.names) for name in readings}
    return bunches.get(scorers.SINGLE, bunches)


def _check_run() -> None:
    """Columns are shared out by joblib: no call keeps their units, and nothing may look as if it did."""
    folder = resolved().checkpoint
    if folder is not None:
        raise ValueError(
            f"rl.Run has checkpoint={shown(str(folder))}, but this function keeps no units: leave it out, or use "
            "rl.permutation_importance"
        )


def _checked_scorer(estimator: object, scoring: object) -> Scorer:
    """scikit-learn's own, whose error would list all of its scorers."""
    from sklearn.metrics import check_scoring

    try:
        scorer: Scorer = check_scoring(estimator, scoring=scoring)
    except ValueError as error:
        raise ValueError(f"scoring={shown(scoring)}: {short(str(error), 150)}; see sklearn.metrics") from error
    return scorer


def _scores(scorer: Scorer, estimator: object, X: object, y: object, weights: object) -> dict[str, float]:
    answer = scorers.ask(scorer, estimator, X, y, weights)
    return answer if isinstance(answer, dict) else {scorers.SINGLE: float(answer)}


def _measured(
    estimator: object,
    part: Rows,
    readings: dict[str, Reading],
    weights: object,
    replay: Replay,
    repeats: int,
    columns: NDArray[np.int64],
) -> dict[str, Importance]:
    """The importances of some columns under every scorer; scorers that read the same response share its evaluation."""
    found: dict[str, Importance] = {}
    # A replay keeps its place, and workers may be threads: each has its own.
    plan = plans.Permutations(len(part.array), repeats, Replay(replay.seed, replay.population, replay.samples))
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reading in readings.items():
        groups.setdefault((reading.response, reading.form), []).append(name)
    for (response, form), names in groups.items():
        predict = scorers.responder(estimator, response, form, part.decode)
        model = Model(predict, estimator, block_rows=_CALL_ROWS)
        problem = prepare(
            model,
            part.array,
            readings[names[0]].target,  # scorers of one response and form compare it with the same labels
            [int(j) for j in columns],
            [readings[name].function for name in names],
            # Scorers that are called have the weights already.
            None if form == "raw" or weights is None else np.asarray(weights, dtype=np.float64),
            names=part.names,
        )
        results = measure(problem, plan, "difference", "permutation_importance", route="auto", quiet=True)
        assert isinstance(results, Results)
        found |= results.entries
    return found


def _bunch(parts: list[Importance], offset: float, names: tuple[str, ...]) -> Bunch:
    from reliance.sklearn.answers import Answer

    importances = np.concatenate([part.importances for part in parts]) + offset
    answer: Bunch = Answer(
        importances_mean=np.mean(importances, axis=1),
        importances_std=np.std(importances, axis=1),
        importances=importances,
        # Not moved by the offset: the permuted rows know their own error, and nothing of that of the other rows.
        intervals=np.concatenate([_intervals(part) for part in parts]),
        skewed=np.concatenate([np.isin(part.names, part._skewed()) for part in parts]),
        names=np.asarray(names),
    )
    return answer


def _intervals(part: Importance) -> NDArray[np.float64]:
    unknown = np.isnan(part.std_error).all()
    return np.full((len(part.names), 2), np.nan) if unknown else part._interval(_LEVEL)


def _checked_samples(max_samples: object, n: int) -> int:
    if isinstance(max_samples, int | np.integer) and not isinstance(max_samples, bool):
        if max_samples > n:
            raise ValueError(f"max_samples must be <= n_samples, which is {n}; max_samples={max_samples}")
        if max_samples >= 1:
            return _enough(int(max_samples), max_samples, n)
    elif isinstance(max_samples, float | np.floating) and 0.0 < max_samples <= 1.0:
        return _enough(int(max_samples * n), max_samples, n)
    raise ValueError(f"max_samples={shown(max_samples)}: pass a number of rows, or a share in (0, 1]")


def _enough(rows: int, max_samples: object, n: int) -> int:
    if rows < 2:
        raise ValueError(
            f"max_samples={shown(max_samples)} of {n} rows is {rows}: pass at least 2 rows, because one row has no "
            "other to take a value from"
        )
    return rows


def _check_repeats(n_repeats: object) -> None:
    if isinstance(n_repeats, bool) or not isinstance(n_repeats, int | np.integer) or n_repeats < 1:
        raise ValueError(f"n_repeats={shown(n_repeats)}: pass how many times each column is permuted, at least 1")
