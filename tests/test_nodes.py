"""Smooth models by nodes in the place of donors: right to the tolerance, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reliance as rl
from reliance.exact.nodes import ORDERS, Nodes, gauss_rule
from reliance.exact.plain import Plain

N = 160
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 5))
X[:, 1] = np.exp(X[:, 1])
X[:, 2] = np.round(X[:, 2])
X[:, 3] = 1e3 + X[:, 3].round(2)
y = X[:, 0] + np.sin(X[:, 1]) + 0.3 * rng.normal(size=N)
WEIGHT, LAST = rng.normal(size=(5, 8)) * np.array([0.5, 0.3, 0.5, 0.5, 0.0])[:, None], rng.normal(size=8)
WEIGHT[3] /= 1e3


def network(namespace=np, activation=None):
    """The last column is not used."""
    first, last = (namespace.asarray(part) for part in (WEIGHT, LAST))
    return lambda rows: (activation or namespace.tanh)(rows @ first) @ last


def same(found, plain, rtol=1e-6):
    scale = np.max(np.abs(plain.values))
    np.testing.assert_allclose(found.values, plain.values, atol=rtol * scale)
    np.testing.assert_allclose(found.std_error, plain.std_error, atol=rtol * np.max(plain.std_error))


def both(model, X=X, y=y, **options):
    options = {"compare": "difference", **options}
    return (rl.model_reliance(model, X, y, route=way, **options) for way in ("nodes", "plain"))


@pytest.mark.parametrize("weights", [None, rng.uniform(size=N)])
def test_values_and_errors_are_those_of_all_pairs(weights):
    found, plain = both(network(), weights=weights, keep=("curves", "rows"))
    assert found.routes == ("nodes", "nodes", "distinct", "nodes", "nodes")
    same(found, plain)
    assert found.values[4] == 0.0
    np.testing.assert_allclose(found.row_values, plain.row_values, atol=1e-6 * np.max(np.abs(plain.row_values)))
    for own, other in zip(found.curves.values(), plain.curves.values(), strict=True):
        np.testing.assert_allclose(own.mean, other.mean, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 120),
    shape=st.sampled_from(["normal", "lognormal", "uniform", "student", "ties"]),
    weighted=st.booleans(),
    compare=st.sampled_from(["difference", "ratio"]),
)
def test_any_smooth_model_is_right_or_refused(seed, n, shape, weighted, compare):
    rng = np.random.default_rng(seed)
    draw = {
        "normal": lambda: rng.normal(size=n),
        "lognormal": lambda: rng.lognormal(size=n),
        "uniform": lambda: rng.uniform(size=n),
        "student": lambda: rng.standard_t(3, size=n),
        "ties": lambda: rng.normal(size=n).round(1),
    }[shape]
    rows = np.stack([draw(), draw(), np.full(n, 2.0)], axis=1)
    first, last = rng.normal(size=(3, 6)), rng.normal(size=6)
    model = lambda block: np.tanh(block @ first) @ last  # noqa: E731
    options = {"compare": compare, "weights": rng.uniform(0.5, 2.0, n) if weighted else None, "keep": "rows"}
    labels = model(rows) + rng.normal(size=n)
    try:
        found = rl.model_reliance(model, rows, labels, route="nodes", **options)
    except ValueError as reason:
        assert "route='nodes'" in str(reason)  # noqa: PT017
        return
    plain = rl.model_reliance(model, rows, labels, route="plain", **options)
    for name in ("values", "row_values", "std_error"):
        known = getattr(plain, name)
        np.testing.assert_allclose(getattr(found, name), known, atol=1e-4 * np.nanmax(np.abs(known)), err_msg=name)


def test_several_losses_and_curves_of_rows():
    labels = (y > 0.5).astype(float)

    def probability(rows):
        return 1.0 / (1.0 + np.exp(-network()(rows)))

    losses = ["log_loss", "squared_error"]
    found, plain = both(probability, y=labels, loss=losses, features=[0, 1])
    for loss in losses:
        same(found[loss], plain[loss])
    found, plain = both(network(), features=[0, 3], keep="ice")
    for own, other in zip(found.curves.values(), plain.curves.values(), strict=True):
        np.testing.assert_allclose(own.ice, other.ice, atol=1e-4)


def test_on_every_backend(backend):
    rows, labels, first, last = (backend.asarray(part) for part in (X, y, WEIGHT, LAST))
    found, plain = both(lambda block: backend.xp.tanh(block @ first) @ last, rows, labels, features=[0, 1])
    assert found.routes == ("nodes", "nodes")
    same(found, plain, 1e-4 if backend.dtype == "float32" else 1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (network(activation=lambda h: np.maximum(h, 0.0)), {}, "no smooth function of 'x0'"),
        (lambda rows: np.where(rows[:, 0] > 0.3, 1.0, 0.0) * rows[:, 1], {}, "no smooth function of 'x0'"),
        (network(), {"loss": "absolute_error"}, "no smooth function"),
        (network(), {"loss": ["squared_error", "absolute_error"]}, "no smooth function"),
        (network(), {"features": [(0, 1)]}, "group of columns"),
        (network(), {"pairs": 4}, "for all pairs"),
        (network(), {"run": rl.Run(memory=30_000)}, "too small"),
    ],
)
def test_what_is_not_smooth_is_refused(model, options, words):
    with pytest.raises(ValueError, match=words):
        rl.model_reliance(model, X, y, route="nodes", **options)


def test_missing_values_and_integers_are_refused():
    gaps = X.copy()
    gaps[3, 0] = np.nan
    with pytest.raises(ValueError, match="missing or infinite"):
        rl.model_reliance(lambda rows: np.nan_to_num(rows[:, 0]), gaps, y, route="nodes", features=[0])
    with pytest.raises(ValueError, match="floating numbers"):
        rl.model_reliance(lambda rows: rows[:, 0], np.arange(60).reshape(-1, 1), np.ones(60), route="nodes")


def test_the_tolerance_of_the_route_decides_on_the_nodes(monkeypatch):
    found = []
    for tolerance in (1e-4, 1e-10):
        monkeypatch.setattr("reliance.exact.routes.ROUTES", [Nodes(tolerance), Plain()])
        found.append(rl.model_reliance(network(), X, y, route="nodes", features=[0], compare="difference"))
    assert found[0].evaluations[0] < found[1].evaluations[0]
    plain = rl.model_reliance(network(), X, y, route="plain", features=[0], compare="difference")
    same(found[0], plain, 1e-4)
    same(found[1], plain, 1e-10)


def test_every_row_that_the_model_sees_is_counted():
    seen, told = 0, []

    def counting(rows):
        nonlocal seen
        seen += len(rows)
        return network()(rows)

    def calls(features):
        nonlocal seen
        seen = 0
        result = rl.model_reliance(
            counting, X, y, route="nodes", features=features, progress=lambda done, total: told.append((done, total))
        )
        return seen, result

    # The base pass, and the batch that shows its rounding, are the same for any features.
    (few, one), (many, four) = calls([0]), calls([0, 1, 3, 4])
    assert many - few == four.evaluations.sum() - one.evaluations.sum()
    again = 127  # 64 rows twice, -1 modulo 16
    assert few == one.evaluations.sum() + N + again
    assert told[-1] == (four.evaluations.sum(),) * 2


def test_it_is_never_taken_by_itself():
    assert "nodes" not in rl.model_reliance(network(), X, y).routes


# ---------------------------------------------------------------------------------------------------------------------
# Quadrature


@pytest.mark.parametrize("values", [X[:, 0], X[:, 1], X[:, 3], np.append(X[:, 0], 1e4)])
def test_quadrature_is_exact_for_polynomials(values):
    order = 16
    rule = gauss_rule(values, order)
    local = (values - values.mean()) / np.abs(values - values.mean()).max()
    nodes = (rule.nodes - values.mean()) / np.abs(values - values.mean()).max()
    for degree in range(2 * order):
        np.testing.assert_allclose(rule.weights @ nodes**degree, np.sum(local**degree), atol=1e-10 * len(values))
    for degree in range(order):
        np.testing.assert_allclose(rule.interpolate(nodes**degree), local**degree, atol=1e-10)
    assert order in ORDERS
