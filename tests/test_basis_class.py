"""Models linear in given functions: against the linear class, literal pairs of rows, and the engine."""

from __future__ import annotations

from bisect import bisect_right
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import reliance as rl
from reliance._core.arrays import to_host

METHODS = (rl.model_class_reliance, rl.conditional_model_class_reliance)


def problem(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] += 0.8 * X[:, 0]
    return X, X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)


def identity(X):
    return X + 0.0


def close(found, expected, tolerance=1e-9):
    for name in ("reference_risk", "bound", "lower", "upper", "achieved_lower", "achieved_upper"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.8}, {"intercept": False}, {"ridge": 0.8, "intercept": 0.3}])
@pytest.mark.parametrize("columns", [[(0,), (1,), (2,)], None], ids=["separate", "pairs"])
def test_columns_as_functions_are_the_linear_class(columns, options, compare):
    """Plain and conditional, by groups of columns and by sums over all pairs."""
    X, y = problem()
    for method in METHODS:
        ask = {"epsilon": 0.2, "compare": compare, "features": [0, (1, 2)]}
        found = method(rl.BasisClass(identity, columns, **options), X, y, **ask)
        # Two constraints are certified, not closed: bounds of another order of sums differ in the last digits.
        close(found, method(rl.LinearClass(**options), X, y, **ask), 1e-7 if "ridge" in options else 1e-9)


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "hinge"])
@pytest.mark.slow
def test_steps_are_groups_of_an_expanded_design(loss):
    X, y = problem(n=40)
    labels = {"squared_error": y, "logistic": (y > 0).astype(int), "hinge": np.where(y > 0, 1, -1)}[loss]
    cuts = {0: [-0.5, 0.5], 1: [0.2]}
    design = np.stack([X[:, j] > point for j in (0, 1) for point in sorted(cuts[j])], axis=1).astype(float)
    ask = {"epsilon": 0.1, "rng": 0}
    found = rl.model_class_reliance(rl.BasisClass.from_steps(cuts, loss=loss, ridge=3.0), X[:, :2], labels, **ask)
    groups = {"x0": [0, 1], "x1": [2]}
    close(found, rl.model_class_reliance(rl.LinearClass(loss, 3.0), design, labels, features=groups, **ask))


def products(X):
    return np.stack([X[:, 0], X[:, 1], X[:, 0] * X[:, 2], np.sin(X[:, 1] + X[:, 2])], axis=1)


READS = [(0,), (1,), (0, 2), (1, 2)]


@pytest.mark.parametrize("compare", ["ratio", "difference"])
@pytest.mark.parametrize("ridge", [None, 0.7])
def test_functions_that_mix_columns(ridge, compare):
    """Ends are those of their models, all are in the set, and no random member lies beyond."""
    X, y = problem(n=30)
    features, rng = [(0,), (1, 2)], np.random.default_rng(1)
    kind = rl.BasisClass(products, READS, ridge=ridge)
    found = rl.model_class_reliance(kind, X, y, epsilon=0.3, compare=compare, features=features)
    Z, n = np.column_stack([np.ones(30), products(X)]), 30
    for j, columns in enumerate(features):
        pairs = np.repeat(X[:, None, :], n, axis=1)
        pairs[:, :, list(columns)] = X[None, :, list(columns)]
        apart = ~np.eye(n, dtype=bool)
        rows = products(pairs.reshape(-1, 3)).reshape(n, n, -1)[apart]
        switched, labels = np.column_stack([np.ones(len(rows)), rows]), np.repeat(y, n - 1)

        def value(theta, switched=switched, labels=labels):
            risk, other = np.mean((y - Z @ theta) ** 2), np.mean((labels - switched @ theta) ** 2)
            return risk, other / risk if compare == "ratio" else other - risk

        ends = (found.lower_models[j], found.achieved_lower[j]), (found.upper_models[j], found.achieved_upper[j])
        for model, achieved in ends:
            risk, literal = value(np.append(model.intercept, model.coef))
            assert risk <= found.bound * (1 + 1e-9)
            assert ridge is None or np.linalg.norm(model.coef) <= ridge * (1 + 1e-9)
            assert literal == pytest.approx(achieved, rel=1e-8)
        assert found.gap[j].max() <= (1e-6 if ridge else 1e-9)
        start = np.append(ends[0][0].intercept, ends[0][0].coef)
        for _ in range(300):
            theta = start + 10 ** rng.uniform(-3, 0) * rng.normal(size=5)
            risk, literal = value(theta)
            if risk <= found.bound and (ridge is None or np.linalg.norm(theta[1:]) <= ridge):
                assert found.lower[j] - 1e-9 <= literal <= found.upper[j] + 1e-9


def test_the_trees_of_a_forest():
    """With all weights 1 the model is the forest; the ends are what the engine measures of their models."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    X, y = problem(n=60)
    forest = ensemble.RandomForestRegressor(n_estimators=6, max_depth=2, max_features=1, random_state=0).fit(X, y)
    kind = rl.BasisClass.from_forest(forest, ridge=3.0)
    np.testing.assert_allclose(kind.basis(X).sum(axis=1), forest.predict(X), rtol=1e-9)
    found = rl.model_class_reliance(kind, X, y, epsilon=0.1)
    ends = [*zip(found.lower_models, found.achieved_lower, strict=True)]
    ends += zip(found.upper_models, found.achieved_upper, strict=True)
    for k, (model, value) in enumerate(ends):
        plain = rl.model_reliance(model, X, y, loss="squared_error", features=[k % 3])
        assert plain.values[0] == pytest.approx(value, rel=1e-7)
    again = rl.model_class_reliance(kind, X, y, epsilon=0.1, reference=found.upper_models[0])
    assert again.reference_risk == pytest.approx(found.upper_risks[0])


def test_the_last_layer_of_a_network():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X, y = (torch.as_tensor(a, dtype=torch.float32) for a in problem(n=50))
    body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5))
    net = torch.nn.Sequential(body, torch.nn.Linear(4, 1))
    found = rl.model_class_reliance(rl.BasisClass.from_last_layer(net, ridge=4.0), X, y, epsilon=0.1)
    assert net.training
    own = rl.BasisClass(lambda X: body[:2](X.float()).detach(), ridge=4.0)
    close(found, rl.model_class_reliance(own, X, y, epsilon=0.1), 1e-5)
    net.eval()
    plain = rl.model_reliance(found.upper_models[1], X, y, loss="squared_error", features=[1])
    assert plain.values[0] == pytest.approx(found.achieved_upper[1], rel=1e-4)
    ended = torch.nn.Sequential(body, torch.nn.Linear(4, 1), torch.nn.Sigmoid())
    with pytest.raises(ValueError, match="last linear layer"):
        rl.model_class_reliance(rl.BasisClass.from_last_layer(ended, ridge=1.0), X, y, epsilon=0.1)


def test_what_is_refused():
    X, y = problem()
    for kind, options, words in (
        (rl.BasisClass(products, [(0,), (1,), (0,), (1, 2)]), {}, "columns says"),
        (rl.BasisClass(products, [(0,)]), {}, "4 functions"),
        (rl.BasisClass(products, [(0,), (1,), (0, 9), (1, 2)]), {}, "columns"),
        (rl.BasisClass(lambda X: X[:, 0]), {}, "shape"),
        (rl.BasisClass(lambda X: np.concatenate([X, X], axis=1)), {}, "linear combinations"),
        (rl.BasisClass(lambda X: np.log(X - 9)), {}, "NaN"),
        (rl.BasisClass(products, loss="logistic", ridge=1.0), {"y": (y > 0).astype(int)}, "do not mix"),
    ):
        with pytest.raises(ValueError, match=words), np.errstate(invalid="ignore"):
            rl.model_class_reliance(kind, X, options.get("y", y), epsilon=0.1)
    with pytest.raises(TypeError, match="reference"):
        rl.model_class_reliance(rl.BasisClass(identity), X, y, epsilon=0.1, reference=rl.models.Linear(np.ones(3)))
    unread = rl.model_class_reliance(rl.BasisClass(lambda X: X[:, :2], [(0,), (1,)]), X, y, epsilon=0.1)
    assert (unread.lower[2], unread.upper[2]) == (1.0, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Additive models of other libraries, by stand-ins that have the attributes that are read


def machine(pair=True):
    """Three bins of the first column, four of the second, and coarser ones for their pair."""
    rng = np.random.default_rng(0)
    bins = [[np.array([-0.5, 0.4]), np.array([0.0])], [np.array([-0.3, 0.2, 0.9]), np.array([0.2])], [np.array([0.1])]]
    features = [(0,), (1,), (2,)] + [(0, 1)] * pair
    scores = [rng.normal(size=tuple(len(bins[j][0 if len(own) == 1 else 1]) + 3 for j in own)) for own in features]
    return SimpleNamespace(bins_=bins, term_features_=features, term_scores_=scores)


def looked_up(ebm, X):
    """Term by term and row by row: the bin of a value is one more than the number of cut points that it reaches."""
    found = []
    for own, table in zip(ebm.term_features_, ebm.term_scores_, strict=True):
        cuts = [ebm.bins_[j][min(len(ebm.bins_[j]), len(own)) - 1] for j in own]
        found.append([table[tuple(1 + bisect_right(c, x[j]) for j, c in zip(own, cuts, strict=True))] for x in X])
    return np.array(found).T


def test_boosting_machines(backend):
    X, _ = problem(n=60)
    X[:2, 0] = -0.5, 0.4  # on the cut points
    ebm = machine()
    tables = rl.BasisClass.from_ebm(ebm, functions="terms")
    np.testing.assert_allclose(to_host(tables.basis(backend.asarray(X))), looked_up(ebm, X), rtol=1e-6)
    steps = rl.BasisClass.from_ebm(ebm)
    design = np.column_stack([np.ones(60), to_host(steps.basis(backend.asarray(X)))])
    for column in looked_up(ebm, X).T:  # other heights of its bins are all of this
        np.testing.assert_allclose(design @ np.linalg.lstsq(design, column)[0], column, atol=1e-5)


def test_a_boosting_machine_of_single_columns_is_an_expanded_design():
    X, y = problem(n=60)
    cuts = {0: [-0.5, 0.4], 1: [-0.3, 0.2, 0.9], 2: [0.1]}
    design = np.stack([X[:, j] >= point for j in cuts for point in cuts[j]], axis=1).astype(float)
    found = rl.model_class_reliance(rl.BasisClass.from_ebm(machine(pair=False)), X, y, epsilon=0.1)
    groups = {"x0": [0, 1], "x1": [2, 3, 4], "x2": [5]}
    close(found, rl.model_class_reliance(rl.LinearClass(), design, y, features=groups, epsilon=0.1))


def test_generalised_additive_models():
    X, y = problem(n=60)
    knots = np.linspace(-2, 2, 4)

    def term(feature, columns, **more):
        many = columns(X).shape[1]
        shared = {"isintercept": False, "build_columns": lambda X: sparse.csc_array(columns(X))}
        return SimpleNamespace(feature=feature, n_coefs=many, **shared, **more)

    def hats(X):
        return np.maximum(1 - np.abs(X[:, [0]] - knots), 0)

    gam = SimpleNamespace(
        terms=[term(0, hats), term(2, lambda X: X[:, [2]]), SimpleNamespace(isintercept=True, feature=None)],
        coef_=np.zeros(6),
    )
    design = np.column_stack([hats(X), X[:, 2]])
    ask = {"epsilon": 0.1, "rng": 0}
    found = rl.model_class_reliance(rl.BasisClass.from_gam(gam, ridge=3.0), X, y, **ask)
    assert found.lower[1] == found.upper[1] == 1.0  # no term reads it
    groups = {"x0": [0, 1, 2, 3], "x2": [4]}
    linear = rl.model_class_reliance(rl.LinearClass(ridge=3.0), design, y, features=groups, **ask)
    np.testing.assert_allclose(found.achieved_upper[[0, 2]], linear.achieved_upper, rtol=1e-6)
    np.testing.assert_allclose(found.lower[[0, 2]], linear.lower, rtol=1e-6)
    by = rl.BasisClass.from_gam(SimpleNamespace(terms=[term(0, hats, by=2)], coef_=np.zeros(4)))
    assert by.columns == [(0, 2)] * 4


def test_the_libraries_themselves():
    """Where they are installed. The test extra has neither: pygam asks for an older SciPy than ours."""
    X, y = problem(n=200)
    boosting = pytest.importorskip("interpret.glassbox")
    ebm = boosting.ExplainableBoostingRegressor(max_bins=8, interactions=1, max_rounds=20, outer_bags=1, n_jobs=1)
    ebm.fit(X, y)
    scores = rl.BasisClass.from_ebm(ebm, functions="terms").basis(X).sum(axis=1) + ebm.intercept_
    np.testing.assert_allclose(scores, ebm.predict(X), rtol=1e-9)
    pygam = pytest.importorskip("pygam")
    gam = pygam.LinearGAM(pygam.s(0, n_splines=6) + pygam.te(1, 2, n_splines=4)).fit(X, y)
    design = np.column_stack([rl.BasisClass.from_gam(gam).basis(X), np.ones(200)])
    np.testing.assert_allclose(design @ gam.coef_, gam.predict(X), rtol=1e-9)


def test_what_is_refused_of_other_libraries():
    named, several = machine(), machine()
    named.bins_[1] = [{"a": 1, "b": 2}]
    several.term_scores_[0] = np.zeros((5, 3))
    for make, words in (
        (lambda: rl.BasisClass.from_ebm(object()), "bins_"),
        (lambda: rl.BasisClass.from_ebm(named), "categories in column 1"),
        (lambda: rl.BasisClass.from_ebm(several), "one for each class"),
        (lambda: rl.BasisClass.from_ebm(machine(), functions="trees"), "functions="),
        (lambda: rl.BasisClass.from_gam(object()), "pygam"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            make()
