"""Sums over pairs without the pairs: Chebyshev panels and sorted sums, against literal double loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reliance.exact.panels import Panels, Themselves, interpolation, tail
from reliance.exact.sorted_sums import SortedSums

NUMBERS = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -0.0, 1.0, 1.5]))


@settings(max_examples=60, deadline=None)
@given(values=hnp.arrays(np.float64, st.integers(1, 30), elements=NUMBERS), data=st.data())
def test_sums_below_a_point_are_those_of_a_loop(values, data):
    at = data.draw(hnp.arrays(np.float64, 7, elements=NUMBERS))
    weights = data.draw(hnp.arrays(np.float64, (len(values), 2), elements=st.floats(-3, 3)))
    found = SortedSums.of(values, weights)
    below = [[sum(w[k] for v, w in zip(values, weights, strict=True) if v < a) for k in (0, 1)] for a in at]
    equal = [[sum(w[k] for v, w in zip(values, weights, strict=True) if v == a) for k in (0, 1)] for a in at]
    below, equal = np.reshape(below, (7, 2)), np.reshape(equal, (7, 2))
    np.testing.assert_allclose(found.below(at), below, atol=1e-12)
    np.testing.assert_allclose(found.up_to(at), below + equal, atol=1e-12)
    np.testing.assert_allclose(found.midway(at), below + equal / 2, atol=1e-12)
    assert SortedSums.of(values).below(at).tolist() == [sum(v < a for v in values) for a in at]


@pytest.mark.parametrize(("order", "width"), [(8, 0.125), (16, 1.0)])
def test_smooth_sums_of_pairs_are_those_of_a_double_loop(order, width):
    rng = np.random.default_rng(0)
    a, t = rng.normal(size=700) * 2, np.append(rng.normal(size=699), 40.0)  # one far away: empty intervals between
    group, weights = rng.integers(0, 2, 700), rng.uniform(size=700)
    rows, donors = Panels.of(a, width, order), Panels.of(t, width, order)

    def curve(u, negative):
        return np.logaddexp(0.0, -u if negative else u)

    truth = np.array([[curve(x + y, g) for y in t] for x, g in zip(a, group, strict=True)])
    spread = donors.spread(weights[:, None])[:, 0]
    tables = [curve(rows.points[:, None] + donors.points, g) for g in (0, 1)]
    sums = np.concatenate([table @ spread for table in tables])[:, None]
    np.testing.assert_allclose(rows.interpolate(sums, group)[:, 0], truth @ weights, rtol=1e-13)
    by_row = rows.spread(weights[:, None], group, 2)[:, 0].reshape(2, -1)
    curves = by_row[0] @ tables[0] + by_row[1] @ tables[1]
    np.testing.assert_allclose(donors.interpolate(curves[:, None])[:, 0], weights @ truth, rtol=1e-13)
    assert np.max(tail(tables[0], order)) < 1e-12 < np.max(tail(np.abs(rows.points[:, None] - 0.3), order))


def test_few_numbers_are_their_own_points():
    numbers = np.array([0.0, 5.0, 9.0])
    found = interpolation(numbers, 1.0, 16)
    assert isinstance(found, Themselves)
    assert found.points is numbers
    assert isinstance(interpolation(np.linspace(0, 1, 100), 1.0, 16), Panels)
