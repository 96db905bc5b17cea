"""Classes of sparse trees: against all trees by brute force, literal pairs of rows, and ArborEnum's own importance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import reliance as rl
from reliance._core import streams
from reliance.rashomon import uncertainty_of_ends
from reliance.rashomon.tree_paths import packed, summed

LOSSES = ("zero_one", "log_loss", "squared_error")


def every_tree(X, columns, rows, depth):
    """All trees (test, left, right) over binary columns that divide their rows, leaves as the tuples of their rows."""
    yield tuple(rows)
    if depth == 0:
        return
    for j in columns:
        sides = [i for i in rows if X[i, j] <= 0.5], [i for i in rows if X[i, j] > 0.5]
        if all(sides):
            below = [list(every_tree(X, columns, side, depth - 1)) for side in sides]
            for left, right in product(*below):
                yield j, left, right


def is_leaf(tree):
    return not tree or not isinstance(tree[-1], tuple)


def leaves(tree):
    return [tree] if is_leaf(tree) else leaves(tree[1]) + leaves(tree[2])


def output(rows, y, loss):
    own = y[list(rows)]
    if loss == "zero_one":
        return max(sorted(set(y.tolist())), key=lambda label: np.sum(own == label))
    return own.mean()


def loss_of(y, value, loss):
    if loss == "zero_one":
        return float(y != value)
    if loss == "squared_error":
        return (y - value) ** 2
    eps = np.finfo(float).eps
    return -np.log(np.clip(value if y == 1 else 1 - value, eps, 1 - eps))


def predicted(tree, x, outputs):
    while not is_leaf(tree):
        tree = tree[1] if x[tree[0]] <= 0.5 else tree[2]
    return outputs[tree]


def judged(tree, X, y, loss, features):
    """Mean loss and mean switched losses, row by row and pair by pair."""
    n, outputs = len(y), {leaf: output(leaf, y, loss) for leaf in leaves(tree)}
    risk = np.mean([loss_of(y[i], predicted(tree, X[i], outputs), loss) for i in range(n)])
    switched = []
    for columns in features:
        total = 0.0
        for i, k in product(range(n), range(n)):
            x = X[i].copy()
            x[list(columns)] = X[k, list(columns)]
            total += loss_of(y[i], predicted(tree, x, outputs), loss) if i != k else 0.0
        switched.append(total / (n * (n - 1)))
    return risk, np.array(switched)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("p", "depth", "n", "epsilon"), [(3, 3, 16, 0.25), (6, 2, 18, 0.15)])
def test_all_good_trees_by_brute_force(loss, p, depth, n, epsilon):
    rng = np.random.default_rng(p)
    X = rng.integers(0, 2, size=(n, p)).astype(float)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n) > 0.7).astype(int)
    y = y if loss != "squared_error" else y + rng.normal(size=n)
    penalty, features = 0.03, [(0,), (1,), (0, 2)]
    found = rl.model_class_reliance(
        rl.TreeClass(depth=depth, penalty=penalty, cuts=1, loss=loss), X, y, epsilon=epsilon,
        compare="difference", features=features,
    )  # fmt: skip
    objectives = {}
    for tree in every_tree(X, range(p), range(n), depth):
        risk = sum(loss_of(y[i], output(leaf, y, loss), loss) for leaf in leaves(tree) for i in leaf) / n
        objectives[tree] = risk + penalty * len(leaves(tree))
    assert found.reference_risk == pytest.approx(min(objectives.values()), rel=1e-12)
    good = [tree for tree, objective in objectives.items() if objective <= found.bound * (1 + 1e-12)]
    assert len(found.members.names) == len(good) > 2
    np.testing.assert_allclose(found.members.risks, sorted(objectives[tree] for tree in good), rtol=1e-12)
    some = sorted(good, key=objectives.get)[:: max(1, len(good) // 40)]
    values = np.array([switched - risk for risk, switched in (judged(tree, X, y, loss, features) for tree in some)])
    own = found.members.values
    for value in values:  # trees of equal objective have no order: each is among ours
        assert np.min(np.max(np.abs(own - value), axis=1)) <= 1e-12
    if len(some) == len(good):
        np.testing.assert_allclose(found.lower, values.min(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.upper, values.max(axis=0), atol=1e-12)
    assert (found.lower <= values.min(axis=0) + 1e-12).all()
    assert (found.upper >= values.max(axis=0) - 1e-12).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("compare", ["ratio", "difference"])
def test_ends_are_what_the_engine_measures(loss, compare, xp_rows):
    """The models at the ends are functions of batches, on any backend, with the reliance and the loss that is said."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + np.abs(X[:, 1]) + rng.normal(size=60)
    y = y if loss == "squared_error" else (y > 0.7).astype(int)
    data = xp_rows(X), xp_rows(y)
    kind = rl.TreeClass(depth=2, penalty=0.02, cuts=3, loss=loss)
    found = rl.model_class_reliance(kind, *data, epsilon=0.2, compare=compare, features=[0, (1, 2)])
    for models, values, risks in (
        (found.lower_models, found.lower, found.lower_risks),
        (found.upper_models, found.upper, found.upper_risks),
    ):
        for k, model in enumerate(models):
            plain = rl.model_reliance(model, *data, loss=loss, compare=compare, features=[0, (1, 2)], route="plain")
            assert plain.values[k] == pytest.approx(values[k], rel=1e-5, abs=1e-5)
            assert plain.base_risk < risks[k] <= found.bound * (1 + 1e-9)


@pytest.fixture(params=["numpy", "torch"])
def xp_rows(request):
    if request.param == "numpy":
        return lambda x: x
    torch = pytest.importorskip("torch")
    return torch.as_tensor


@pytest.mark.parametrize("loss", ["log_loss", "zero_one", lambda y, prediction: np.abs(y - prediction) ** 1.5])
def test_fitted_trees(loss):
    """Fitted trees with any loss are what a list of models has; bad ones are listed without reliance."""
    tree = pytest.importorskip("sklearn.tree")
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 4))
    y = X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=80)
    y, kind = (y, "Regressor") if callable(loss) else ((y > 0.5).astype(int), "Classifier")
    settings = {"max_depth": 3, "min_samples_leaf": 5, "max_features": 2}
    models = [getattr(tree, f"DecisionTree{kind}")(random_state=k, **settings).fit(X, y) for k in range(6)]
    options = {"epsilon": 0.3, "compare": "difference", "features": [0, 1, (2, 3)], "reference": models[1]}
    found = rl.model_class_reliance(rl.TreeClass.from_trees(models, loss=loss), X, y, **options)
    listed = rl.model_class_reliance(rl.FiniteClass(models, loss=loss), X, y, **options)
    np.testing.assert_allclose(found.members.risks, listed.members.risks, rtol=1e-12)
    np.testing.assert_array_equal(found.members.inside, listed.members.inside)
    np.testing.assert_allclose(found.members.values, listed.members.values, atol=1e-12)
    np.testing.assert_allclose([found.lower, found.upper], [listed.lower, listed.upper], atol=1e-12)
    with pytest.raises(TypeError, match="single fitted tree"):
        rl.model_class_reliance(rl.TreeClass.from_trees([lambda X: X[:, 0]], loss=loss), X, y, epsilon=1.0)


def test_arborenum_agrees():
    """Its trees are ours, and so is its importance, in which a row may be its own donor."""
    arborenum = pytest.importorskip("arborenum")
    rng = np.random.default_rng(3)
    X = rng.integers(0, 2, size=(60, 4)).astype(float)
    y = ((X[:, 0] * X[:, 1] > 0) ^ (rng.random(60) < 0.15)).astype(int)
    peer, n = arborenum.ArborEnum(), len(y)
    settings = {"lambda_reg": 3 / n, "depth_budget": 3, "rashomon_mult": 0.3}
    exactly = {"proxy_mode": "continuous", "lookahead_k": 2, "key_mode": "exact", "majority_leaf_only": True}
    peer.fit(X, y, **settings, **exactly)
    theirs = rl.model_class_reliance(
        rl.TreeClass.from_trees(peer, penalty=3 / n), X, y, epsilon=0.3, compare="difference"
    )
    depth = max(len(path) for k in range(peer.count_trees()) for path in peer.get_tree_paths(k)[0])
    ours = rl.model_class_reliance(
        rl.TreeClass(depth=depth, penalty=3 / n, cuts=1), X, y, epsilon=0.3, compare="difference"
    )
    assert theirs.reference_risk == pytest.approx(ours.reference_risk)
    intervals = peer.get_exact_replacement_importance_intervals(X, y)
    share = (n - 1) / n  # the n pairs of a row with itself change nothing
    np.testing.assert_allclose(share * np.stack([theirs.lower, theirs.upper], axis=1), intervals, atol=1e-12)
    np.testing.assert_allclose(ours.upper, theirs.upper, atol=1e-12)
    np.testing.assert_allclose(ours.lower, theirs.lower, atol=1e-12)


def test_distribution_over_samples_of_the_rows(tmp_path):
    """The trees are searched again on each sample: each counts equally, and within it each good tree."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 2, size=(60, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] > 1).astype(int) ^ (rng.random(60) < 0.15)
    ask = {"epsilon": 0.2, "compare": "difference"}
    result = rl.model_class_reliance(rl.TreeClass(depth=2, penalty=0.02), X, y, uncertainty=20, rng=0, **ask)
    expected, weights, ends = [], [], []
    for b in range(20):
        ids = streams.stream(0, uncertainty_of_ends._SAMPLES, b).integers(60, size=60)
        one = rl.model_class_reliance(rl.TreeClass(depth=2, penalty=0.02), X[ids], y[ids], **ask)
        good = one.members.values[one.members.inside]
        expected.append(good)
        weights += [1 / (20 * len(good))] * len(good)
        ends.append(np.stack([one.lower, one.upper], axis=1))
    np.testing.assert_allclose(result.end_errors, np.std(ends, axis=0, ddof=1), atol=1e-12)
    result.save(tmp_path / "trees.json")
    for found in (result, rl.load(tmp_path / "trees.json")):
        for j in range(3):
            values, shares = found.members.distribution(j)
            order, other = np.argsort(values), np.argsort(np.concatenate(expected)[:, j])
            np.testing.assert_allclose(values[order], np.concatenate(expected)[other, j], atol=1e-12)
            np.testing.assert_allclose(shares.sum(), 1.0)
            mean = np.sum(np.concatenate(expected)[:, j] * weights)
            np.testing.assert_allclose(np.sum(values * shares), mean, atol=1e-12)
    assert result.members.quantiles().shape == (3, 3)


def test_cuts():
    """Points by quantiles, by name, and of a boosted ensemble: the models split there and nowhere else."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(4)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=100)
    boosted = ensemble.GradientBoostingRegressor(n_estimators=4, max_depth=1).fit(X, y)
    allowed = {float(stump.tree_.threshold[0]) for (stump,) in boosted.estimators_}
    for cuts, points in (({"x0": [0.25], 1: [-0.5]}, {0.25, -0.5}), (boosted, allowed)):
        kind = rl.TreeClass(depth=2, penalty=0.001, cuts=cuts, loss="squared_error")
        model = rl.model_class_reliance(kind, X, y, epsilon=0.01, compare="difference").upper_models[0]
        assert {float(t) for t in model.threshold[model.feature >= 0]} <= points
    binary = rl.TreeClass(depth=1, penalty=0.0, cuts=5, loss="squared_error")
    model = rl.model_class_reliance(binary, (X > 0).astype(float), y, epsilon=0.0, compare="difference").upper_models[0]
    assert model.threshold[0] == 0.5


def test_sums_over_sets_of_rows():
    """By bits and by weights, against loops; more rows than a word has bits."""
    rng = np.random.default_rng(5)
    flags, values = rng.random((7, 130)) < 0.4, np.array([2, 0, 1, 1, 0, 2, 2])
    for table in (rng.random((3, 130)), (rng.random((3, 130)) < 0.5).astype(float)):
        found = summed(packed(flags), values, 130, lambda some, table=table: table[some])
        expected = [sum(table[v, i] for i in range(130) if flags[k, i]) for k, v in enumerate(values)]
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_what_is_refused():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    for kind, options, words in (
        (rl.TreeClass(), {"reference": lambda X: X[:, 0]}, "listed"),
        (rl.TreeClass(most=2, penalty=0.0), {"epsilon": 1.0}, "most=2"),
        (rl.TreeClass(loss="absolute_error"), {}, "loss="),
        (rl.TreeClass(cuts={"age": [1.0]}), {}, "cuts"),
        (rl.TreeClass(cuts={0: [99.0]}), {}, "cuts"),
    ):
        with pytest.raises(ValueError, match=words):
            rl.model_class_reliance(kind, X, y, **{"epsilon": 0.1, "compare": "difference", **options})
    with pytest.raises(ValueError, match="conditional"):
        rl.conditional_model_class_reliance(rl.TreeClass(), X, y, epsilon=0.1)
    for bad in ({"depth": 0}, {"penalty": -1.0}, {"most": True}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            rl.TreeClass(**bad)
