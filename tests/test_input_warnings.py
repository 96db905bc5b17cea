"""Input that is allowed with a warning: once, at the user's line, and with a right result."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import bad_calls
import reliance as rl
from bad_calls import X, Y, ablation, measure, reliance, replaced


def messages(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", [measure, reliance, ablation])
def test_not_finite_X_warns_once_and_works(method, value):
    holed = replaced(X, (3, 0), value)

    def tolerant(x):
        return np.where(np.isfinite(x[:, 0]), x[:, 0], 0.0) + x[:, 1]

    found = messages(lambda: method(tolerant, holed))
    assert [m for m in found if "X holds NaN or infinite values" in m] == found
    assert len(found) == 1
    filled = replaced(X, (3, 0), 0.0)
    # Ranks would sort the two columns differently.
    same_donors = {"draws": rl.Draws(4, design="shifts")} if method is measure else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = method(tolerant, holed, **same_donors)
    np.testing.assert_allclose(result.values, method(tolerant, filled, **same_donors).values, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]])
def test_large_numbers_are_finite_and_nan_is_found_in_any_layout(layout, dtype):
    # Their sum and the sum of their squares are not finite. No column is constant, which would be another warning.
    large = np.full((70, 3), np.finfo(dtype).max, dtype=dtype)
    large[0] /= 2
    assert messages(lambda: measure(lambda x: np.ones(len(x)), layout(large), np.zeros(70))) == []
    for value in (np.nan, np.inf, -np.inf):
        holed = layout(replaced(large, (69, 1), value))
        (found,) = messages(lambda holed=holed: measure(lambda x: np.ones(len(x)), holed, np.zeros(70)))
        assert "X holds NaN or infinite values" in found


WARNED = {
    "halves-odd": (lambda: reliance(X=X[:9], y=Y[:9], pairs="halves"), "pairs='halves' leaves out the last of 9 rows"),
    "draws-beyond": (lambda: measure(draws=11), "draws=11 is more than the 10 ranks of 10 rows"),
    "pairs-beyond": (lambda: reliance(pairs=12), "pairs=12 is more than the 10 ranks of 10 rows"),
    "draws-few": (lambda: measure(draws=2), "draws=2: with fewer than 3 draws"),
    "pairs-few": (lambda: reliance(pairs=1), "pairs=1: with fewer than 3 draws"),
}


@pytest.mark.parametrize("case", WARNED)
def test_warnings(case):
    call, message = WARNED[case]
    found = messages(call)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    "call", [measure, reliance, ablation, lambda: reliance(pairs="halves"), lambda: measure(draws=9)]
)
def test_good_input_says_nothing(call):
    assert messages(call) == []


@pytest.mark.parametrize("case", ["halves-odd", "draws-beyond", "draws-few"])
def test_warnings_point_at_the_users_line(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNED[case][0]()
    assert caught[0].filename == bad_calls.__file__
