"""Testing importances: which features can be, by what, and why there is no error to test with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core.words import shown
from reliance.inference import freedom
from reliance.results.tested import TestResult

if TYPE_CHECKING:
    from reliance.results.importance import Importance

Floats = NDArray[np.float64]
_TESTED = ("compare", "units", "draws_per_row", "values", "std_error", "row_error", "draws", "key")


def tested(result: Importance, alternative: str, method: str, adjust: str) -> TestResult:
    """The tests of all features; nan for those that cannot be tested, which do not count as tests either."""
    inference.check_known(method, inference.METHODS, "method")
    if method == "t":
        check_error(result, "method='t'", result.std_error)
    if method == "paired":
        check_error(result, "method='paired'", result.row_error)
    if method == "rank" and not result.exchangeable:
        raise ValueError(
            "method='rank' takes the draws for exchangeable with the data, which draws by ranks, and draws of rows in "
            f"clusters, are not: measure with draws=rl.Draws({result.draws_per_row}, design='permutations') and "
            "without clusters, or use method='t'"
        )
    names, p = result.names, len(result.names)
    inference.adjust(np.ones(p), adjust)  # a wrong name is an error before the work
    known = _known(result)
    if known.any() and not known.all():
        some = tested(result._taken(np.flatnonzero(known)), alternative, method, adjust)
        found = np.full((3, p), math.nan)
        found[:, known] = some.statistic, some.p_value, some.p_adjusted
        return TestResult(names, found[0], found[1], found[2], method, alternative, adjust)
    statistic, p_value = inference.test(
        method,
        alternative,
        **{name: getattr(result, name) for name in _TESTED},
        df=result.degrees_of_freedom,
        rows=result.row_values if result.unit_values is None else result.unit_values,
        family=1 if adjust == "none" else p,
    )
    return TestResult(names, statistic, p_value, inference.adjust(p_value, adjust), method, alternative, adjust)


def _known(result: Importance) -> NDArray[np.bool_]:
    """The features that can be tested: those that are not identified have no value, or alone no error."""
    no_error = np.isnan(result.std_error)
    return ~(np.isnan(result.values) | (no_error & (not no_error.all())))


def check_error(result: Importance, what: str, error: Floats) -> None:
    """Say why there is no such error."""
    if not np.isnan(error).all():
        return
    if result.n < 3 or result.units < 2:
        raise ValueError(f"{what} needs more rows than n={result.n}: give at least 4")
    if not result.degrees_of_freedom.any():
        raise ValueError(f"{what} of loss={shown(result.loss)} {freedom.TOO_FEW}, or use formulation='fixed-data'")
    if np.all(result.values == inference.null_value(result.compare)):
        return  # features that are constant in X: not known, as was said
    raise ValueError(
        f"{what} needs losses of single rows, which loss={shown(result.loss)} does not have: use "
        "interval(formulation='fixed-data'), or give the metric its influence function, rl.Metric(value, influence)"
    )
