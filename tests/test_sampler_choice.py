"""Samplers that are wrong say so, and the default chooses one that is not: sizes, false alarms, power, and the words.

Run as a program, the file prints the table of the documentation: ``python tests/test_sampler_choice.py --runs 300``.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pytest

import reliance as rl
from reliance._core import arrays
from reliance.samplers import misfit, verdicts


def curved(n: int, seed: int, kind: str = "square") -> tuple[np.ndarray, np.ndarray]:
    """x0 = a function of z plus noise, z, and a y that depends on z only: given z, x0 says nothing."""
    rng = np.random.default_rng(seed)
    z, e = rng.normal(size=n), rng.normal(size=n)
    means = {"line": z, "square": z**2, "wave": 2 * np.sin(2 * z)}
    return np.column_stack([means[kind] + e, z]), means[kind] + rng.normal(size=n)


def model(X):
    return 0.5 * X[:, 0] + 0.5 * X[:, 1]


def measured(n: int, seed: int, sampler: object, kind: str = "square") -> tuple[bool, bool, str]:
    """Whether a true null is rejected, whether a warning says that the sampler is wrong, and the sampler."""
    X, y = curved(n, seed, kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = rl.Given([1], sampler=sampler)
        result = rl.relative_importance(model, X, y, given=given, features=[0], draws=8, rng=seed)
    warned = any("does not fit" in str(one.message) for one in caught)
    return bool(result.test(alternative="two-sided").p_value[0] < 0.05), warned, result.routes[0]


def shares(n: int, sampler: object, kind: str, runs: int) -> tuple[float, float, set[str]]:
    found = [measured(n, seed, sampler, kind) for seed in range(runs)]
    rejected, warned, routes = zip(*found, strict=True)
    return float(np.mean(rejected)), float(np.mean(warned)), set(routes)


def above(share: float, runs: int, most: float) -> bool:
    """By more than three binomial standard errors."""
    return share > most + 3 * np.sqrt(most * (1 - most) / runs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["line", "square", "wave"])
def test_the_default_keeps_its_size(kind):
    rejected, warned, _ = shares(200, "auto", kind, 200)
    assert not above(rejected, 200, 0.065)
    assert not above(warned, 200, 0.005)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gaussian", "leaves"])
def test_a_wrong_sampler_is_warned_about(sampler):
    """A line at 200 rows, leaves at 1000: of 200, leaves follow a parabola well enough to be unsure."""
    rejected, warned, _ = shares(200 if sampler == "gaussian" else 1000, sampler, "square", 40)
    assert warned > 0.97
    assert rejected > 0.1 or sampler == "leaves"


RIGHT = {"gaussian": "line", "splines": "square", "leaves": "steps", "knn": "noise"}


def right_rows(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z, e = rng.normal(size=(n, 3)), rng.normal(size=n)
    means = {"line": z.sum(axis=1), "square": z[:, 0] ** 2, "steps": np.sign(z[:, 0]), "noise": 0 * e}
    return np.column_stack([means[kind] + e, z])


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_sampler_is_not(name):
    """At most 1% of features leave a right sampler for the next, and hardly any are warned about."""
    switched, warned = [], []
    for seed in range(400):
        X = right_rows(RIGHT[name], 200, seed)
        fitted = rl.samplers.residual.resolve(name).fit(X, (0,), (1, 2, 3))
        found = misfit.Check(X)(fitted, fitted.on(X), (0,), (1, 2, 3))
        switched.append(not found.passes(verdicts.SWITCH))
        warned.append(not found.passes(verdicts.LEVEL))
    assert not above(np.mean(switched), 400, 0.015)
    assert not above(np.mean(warned), 400, 0.002)


# ---------------------------------------------------------------------------------------------------------------------
# The choice and its words


def test_the_default_takes_curves_where_a_line_is_wrong():
    for kind, expected in (("line", "gaussian"), ("square", "splines"), ("wave", "splines")):
        assert measured(400, 1, "auto", kind)[1:] == (False, expected)


def test_where_none_fits_the_warning_says_so():
    """Two branches far apart: no mean plus a residual is one, and leaves are too coarse."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=500)
    X = np.column_stack([8 * z * rng.choice([-1.0, 1.0], size=500) + 0.1 * rng.normal(size=500), z])
    with pytest.warns(UserWarning, match="explain [0-9]+% of the spread") as caught:
        rl.relative_importance(model, X, z, given=[1], features=[0], draws=3, rng=0)
    message = str(caught[0].message)
    assert len(message) <= 300
    assert "sampler='knn' in rl.Given passes this check" in message or "none fits" in message


def test_categories_that_leaves_do_not_separate():
    """A code that follows a fine pattern of another column: the check sees levels, and names a sampler that passes."""
    rng = np.random.default_rng(0)
    z = rng.uniform(size=300)
    code = (np.floor(12 * z) % 2).astype(np.int64)
    X = np.column_stack([code, z])
    found = misfit.Check(X, coded=(0,))
    coarse, near = rl.samplers.Leaves(min_leaf=100).fit(X, (0,), (1,)), rl.samplers.KNN(k=3).fit(X, (0,), (1,))
    assert not found(coarse, coarse.on(X), (0,), (1,)).passes(verdicts.LEVEL)
    assert found(near, near.on(X), (0,), (1,)).passes(verdicts.SWITCH)


def test_values_that_a_sampler_makes_are_checked():
    class Anywhere:
        """N(0, 1), whatever is given."""

        def fit(self, X, target, given):
            return self

        def on(self, X):
            def values(rows, u):
                return rl.samplers.draws.normal_quantile(u)

            return rl.samplers.ValueDraws(1, values)

    X, y = curved(300, 0, "line")
    with pytest.warns(UserWarning, match="'anywhere' does not fit 'x0'"):
        rl.relative_importance(model, X, y, given=rl.Given([1], sampler=Anywhere()), features=[0], draws=3, rng=0)


# ---------------------------------------------------------------------------------------------------------------------
# Splines


@pytest.mark.once_per_device
def test_splines_are_least_squares_without_the_row_itself(backend):
    """The mean of a row is that of a fit on the others: refitted literally, row by row, on the same functions."""
    X, _ = curved(60, 0)
    fitted = rl.samplers.Splines().fit(backend.asarray(X), (0,), (1,))
    parts = fitted.on(fitted.X)
    mean, residual = (np.asarray(arrays.to_host(a), dtype=np.float64)[:, 0] for a in (parts.mean, parts.residual))
    design = np.asarray(arrays.to_host(parts.design), dtype=np.float64)
    tolerance = 1e-6 if backend.kind == "numpy" else 1e-3
    np.testing.assert_allclose(residual, X[:, 0] - design @ np.linalg.lstsq(design, X[:, 0])[0], atol=tolerance)
    for i in range(0, 60, 7):
        others = np.arange(60) != i
        h = design[i] @ np.linalg.inv(design.T @ design) @ design[i]
        if h < 0.5:
            expected = design[i] @ np.linalg.lstsq(design[others], X[others, 0])[0]
            assert abs(mean[i] - expected) < 10 * tolerance


def test_splines_hold_lines_and_are_straight_beyond_the_rows():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    X = np.column_stack([1 + 2 * z[:, 0] - z[:, 1], z])
    fitted = rl.samplers.Splines().fit(X, (0,), (1, 2))
    far = np.column_stack([np.zeros(3), [10.0, 20.0, 30.0], [0.1, 0.1, 0.1]])
    np.testing.assert_allclose(fitted.on(far).mean[:, 0], 1 + 2 * far[:, 1] - 0.1, rtol=1e-6)
    bent = rl.samplers.Splines().fit(np.column_stack([z[:, 0] ** 2, z]), (0,), (1, 2)).on(far).mean[:, 0]
    assert abs(bent[2] - 2 * bent[1] + bent[0]) < 1e-8 * abs(bent).max()


def test_splines_leave_out_what_others_say_and_refuse_too_many_columns():
    rng = np.random.default_rng(0)
    level = rng.integers(3, size=200)
    onehot = np.eye(3)[level]
    X = np.column_stack([level + rng.normal(size=200), onehot])
    means = rl.samplers.Splines().fit(X, (0,), (1, 2, 3)).on(X.copy()).mean[:, 0]
    np.testing.assert_allclose(means, [X[level == one, 0].mean() for one in level])
    with pytest.raises(ValueError, match="given has 40 columns, of which splines need 80 coefficients: 200 rows"):
        rl.samplers.Splines().fit(rng.normal(size=(200, 41)), (0,), tuple(range(1, 41)))
    with pytest.raises(ValueError, match="coefficients=0 is not a number"):
        rl.samplers.Splines(coefficients=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    print("| m(z) | n | sampler | rejected | warned | drawn by |\n|---|---|---|---|---|---|")
    for kind, n in [("line", 200), ("square", 200), ("square", 1000), ("wave", 200)]:
        for sampler in ("auto", "gaussian", "leaves", "knn"):
            rejected, warned, routes = shares(n, sampler, kind, runs if sampler != "knn" else runs // 3)
            drawn = ", ".join(sorted(routes))
            print(f"| {kind} | {n} | {sampler} | {100 * rejected:.1f} | {100 * warned:.0f} | {drawn} |", flush=True)
