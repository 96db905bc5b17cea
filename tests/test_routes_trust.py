"""A shortcut is believed only if the model is exactly what its class says and predicts the same on replaced rows."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
import torch
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.linear_model._base import LinearModel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from torch import nn

import reliance as rl
from reliance.models import calling, probes, sklearn_trees, tree_readers, untouched

CUT = 1.5


def data(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ np.arange(p, 0.0, -1.0) + 0.1 * rng.normal(size=n)


def pairs_risk(predict, X, y, column):
    """The mean squared error over all pairs of different rows, literally."""
    total, n = 0.0, len(X)
    for i in range(n):
        rows = np.repeat(X[i : i + 1], n, axis=0)
        rows[:, column] = X[:, column]
        errors = (np.asarray(predict(rows)).reshape(-1) - y[i]) ** 2
        total += sum(float(errors[k]) for k in range(n) if k != i)
    return total / (n * (n - 1))


def check_reliance(model, predict, X, y, banned, **options):
    found = rl.model_reliance(model, X, y, compare="difference", **options)
    assert banned not in found.routes
    assert "unused" not in found.routes
    for j in range(X.shape[1]):
        np.testing.assert_allclose(found.replaced_risk[j], pairs_risk(predict, X, y, j), rtol=1e-6)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Overridden and patched methods


class ClippedRidge(Ridge):
    def predict(self, X):
        return np.clip(super().predict(X), -CUT, CUT)


class ClippedScore(Ridge):
    def _decision_function(self, X):
        return np.clip(super()._decision_function(X), -CUT, CUT)


class ClippedForest(RandomForestRegressor):
    def predict(self, X):
        return np.clip(super().predict(X), -CUT, CUT)


class ClippedLinear(rl.models.Linear):
    def __call__(self, X):
        return np.clip(super().__call__(X), -CUT, CUT)


class Halved(StandardScaler):
    def transform(self, X):
        return np.clip(super().transform(X), -1.0, 1.0)


def clipping(predict):
    @functools.wraps(predict)  # which looks like what it replaces
    def clipped(*args, **kwargs):
        return np.clip(predict(*args, **kwargs), -CUT, CUT)

    return clipped


def patched_instance(model):
    model.predict = clipping(model.predict)
    return model


LINEAR = {
    "override": lambda X, y: ClippedRidge().fit(X, y),
    "inner override": lambda X, y: ClippedScore().fit(X, y),
    "instance": lambda X, y: patched_instance(Ridge().fit(X, y)),
    "pipeline instance": lambda X, y: patched_instance(make_pipeline(StandardScaler(), Ridge()).fit(X, y)),
    "pipeline step": lambda X, y: make_pipeline(StandardScaler(), ClippedRidge()).fit(X, y),
    "scaler": lambda X, y: make_pipeline(Halved(), Ridge()).fit(X, y),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_a_linear_model_that_predicts_otherwise_is_called(kind):
    X, y = data()
    model = LINEAR[kind](X, y)
    assert calling.linear_form(model) is None
    check_reliance(model, model.predict, X, y, "linear")
    impact = rl.feature_impact(model, X)
    for j in range(X.shape[1]):
        for q, point in enumerate(impact.points[:, j]):
            held = X.copy()
            held[:, j] = point
            spread = np.std(model.predict(X) - model.predict(held), ddof=1) / np.std(X[:, j], ddof=1)
            np.testing.assert_allclose(impact.impact[q, j], spread, rtol=1e-9)
    local = rl.local_importance(model, X)
    held = X[np.arange(len(X)) * 0 + 4].copy()  # row 4 with the first column of every row
    held[:, 0] = X[:, 0]
    np.testing.assert_allclose(local.values[4, 0], model.predict(X[4:5])[0] - model.predict(held).mean(), rtol=1e-9)


def test_a_class_of_listed_models_calls_what_predicts_otherwise():
    X, y = data()
    model = ClippedRidge().fit(X, y)
    found = rl.model_class_reliance(rl.FiniteClass([model]), X, y, epsilon=1.0, compare="difference")
    base = np.mean((model.predict(X) - y) ** 2)
    for j in range(X.shape[1]):
        np.testing.assert_allclose(found.upper[j], pairs_risk(model.predict, X, y, j) - base, rtol=1e-9)
    with pytest.raises(TypeError, match="not known to be linear"):
        rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=1.0, reference=model)


@pytest.mark.parametrize("owner", [Ridge, LinearModel])  # the class itself, and one that it inherits from
def test_a_patched_class_is_called(monkeypatch, owner):
    X, y = data()
    model = Ridge().fit(X, y)
    assert calling.linear_form(model) is not None
    monkeypatch.setattr(owner, "predict", clipping(owner.predict))
    assert model.predict(X).max() == CUT
    check_reliance(model, model.predict, X, y, "linear")


def test_a_subclass_that_changes_nothing_keeps_its_route():
    X, y = data()

    class Named(Ridge):
        def describe(self):
            return "a ridge"

    found = rl.model_reliance(Named().fit(X, y), X, y)
    assert set(found.routes) == {"linear"}


def test_own_linear_models_that_override_are_called():
    X, y = data()
    model = ClippedLinear(np.array([3.0, 2.0, 1.0]))
    check_reliance(model, model, X, y, "linear")


@pytest.mark.parametrize("kind", ["override", "instance", "member", "member class"])
def test_trees_that_predict_otherwise_are_called(kind, monkeypatch):
    X, y = data()
    model = (ClippedForest if kind == "override" else RandomForestRegressor)(3, max_depth=3, random_state=0).fit(X, y)
    if kind == "instance":
        patched_instance(model)
    if kind == "member":
        patched_instance(model.estimators_[1])
    if kind == "member class":
        monkeypatch.setattr(DecisionTreeRegressor, "predict", clipping(DecisionTreeRegressor.predict))
    assert tree_readers.read(model, "predict") is None
    check_reliance(model, model.predict, X, y, "trees")


def test_out_of_bag_members_that_predict_otherwise_are_called():
    X, y = data(30, 2)
    plain = BaggingRegressor(DecisionTreeRegressor(random_state=0), 4, random_state=0).fit(X, y)
    patched = BaggingRegressor(DecisionTreeRegressor(random_state=0), 4, random_state=0).fit(X, y)
    for member in patched.estimators_:
        member.predict = lambda Z: np.zeros(len(Z))
    assert np.all(rl.out_of_bag_importance(patched, X, y, rng=0).values == 0.0)
    assert np.any(rl.out_of_bag_importance(plain, X, y, rng=0).values != 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# First layers


def network(p=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(p, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).double()


def doubled(module, inputs, output=None):
    return inputs[0] * 2.0 if output is None else output * 2.0


def hook_model(model):
    model.register_forward_hook(doubled)


def hook_first(model):
    model[0].register_forward_hook(doubled)


def hook_before(model):
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2.0,))


def hook_model_before(model):
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2.0,))


def patch_first(model):
    forward = model[0].forward
    model[0].forward = lambda x: forward(x) * 2.0


def patch_model(model):
    forward = model.forward
    model.forward = lambda x: forward(x).clamp(-0.2, 0.2)


class _Double(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


def parametrise(model):
    torch.nn.utils.parametrize.register_parametrization(model[0], "weight", _Double())


@pytest.mark.parametrize(
    "change", [hook_model, hook_first, hook_before, hook_model_before, patch_first, patch_model, parametrise]
)
def test_a_network_that_is_not_its_layers_is_called(change, monkeypatch):
    X, y = data(25)
    model = network()
    change(model)
    assert calling.first_layer(model) is None
    monkeypatch.setattr("reliance.exact.first_layer.FEWEST_COLUMNS", 1)
    with torch.no_grad():
        check_reliance(model, lambda Z: model(torch.from_numpy(Z)).numpy(), X, y, "first_layer")


def test_global_hooks_and_patched_classes_call_the_network(monkeypatch):
    model = network()
    assert calling.first_layer(model) is not None
    handle = nn.modules.module.register_module_forward_hook(doubled)
    try:
        assert calling.first_layer(model) is None
    finally:
        handle.remove()
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: inputs)
    try:
        assert calling.first_layer(model) is None
    finally:
        handle.remove()
    forward = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: forward(self, x) * 2.0)
    assert calling.first_layer(model) is None


class Bounded(rl.models.FirstLayer):
    def __call__(self, X):
        return np.clip(super().__call__(X), -CUT, CUT)


def test_own_first_layers_that_override_are_called():
    X, y = data(25)
    model = Bounded(np.ones((3, 2)), 0.0, lambda H: H.sum(axis=1))
    assert calling.first_layer(model) is None
    with pytest.raises(ValueError, match="route='first_layer' needs"):
        rl.model_reliance(model, X, y, route="first_layer")


def test_a_first_layer_whose_digits_cancel_is_called():
    """(H - x w) + x' w keeps nothing of H where x w is 1e8 times as large and x' is not, in float32."""
    X, y = data(20, 3)
    X[:, 0] = np.where(np.arange(20) % 2, 1e8, 0.0)
    X, y = X.astype(np.float32), y.astype(np.float32)
    weight = np.ones((3, 1), dtype=np.float32)
    model, fine = (rl.models.FirstLayer(w, np.float32(0.0), lambda H: np.tanh(H[:, 0])) for w in (weight, weight[1:]))
    assert "first_layer" in rl.model_reliance(fine, X[:, 1:], y, route="first_layer").routes
    with pytest.raises(ValueError, match="its first layer and the rest predict"):
        rl.model_reliance(model, X, y, route="first_layer")


# ---------------------------------------------------------------------------------------------------------------------
# What only predictions show


def believe(monkeypatch):
    """Nothing is known of overridden or patched methods: predictions alone can tell."""
    for module in (calling, tree_readers, sklearn_trees, untouched):
        monkeypatch.setattr(module, "inherits", lambda *given: True)
    monkeypatch.setattr(calling, "plain_torch", lambda module: True)


class OutsideOnly(Ridge):
    """Clips what no row of the sample reaches, and some replaced rows do."""

    def predict(self, X):
        found = super().predict(X)
        return np.clip(found, self.low, self.high)


def test_clipping_of_replaced_rows_alone_is_found(monkeypatch):
    believe(monkeypatch)
    X, y = data(60)
    model = OutsideOnly().fit(X, y)
    own = Ridge.predict(model, X)
    model.low, model.high = own.min(), own.max()
    np.testing.assert_array_equal(model.predict(X), own)
    with pytest.warns(UserWarning, match="route='linear': model OutsideOnly does not predict"):
        check_reliance(model, model.predict, X, y, "linear")
    with pytest.warns(UserWarning, match="route='linear': model OutsideOnly"):
        assert "linear" not in rl.feature_impact(model, X).routes
    with pytest.warns(UserWarning, match="route='linear': model OutsideOnly"):
        rl.local_importance(model, X)
    with pytest.raises(ValueError, match="center=False: route='linear'"):
        rl.local_importance(model, X, center=False)
    with pytest.raises(ValueError, match="route='linear': model OutsideOnly"):
        rl.model_reliance(model, X, y, route="linear")


class OddForest(RandomForestRegressor):
    def predict(self, X):
        odd = X[:, 2] == np.asarray(X)[:, 2].max()  # a column that no tree may use
        return super().predict(X) + 10.0 * (odd & (X[:, 0] > self.edge))


def test_trees_are_compared_on_replaced_rows_and_unused_columns(monkeypatch):
    believe(monkeypatch)
    X, y = data(40)
    forest = OddForest(3, max_depth=2, random_state=0).fit(np.c_[X[:, :2], np.zeros(40)], y)
    forest.edge = X[np.argmax(X[:, 2]), 0]  # no row as it is has both
    known = tree_readers.READERS["sklearn"]._replace(ensemble=lambda m, method, _: sklearn_trees._forest(m, method))
    monkeypatch.setitem(tree_readers.READERS, "test_routes_trust", known)
    with pytest.warns(UserWarning, match="route='trees': model OddForest does not predict"):
        found = rl.model_reliance(forest, X, y)
    assert not {"trees", "unused"} & set(found.routes)
    with pytest.warns(UserWarning, match="route='trees': model OddForest"):
        rl.feature_impact(forest, X)
    with pytest.raises(ValueError, match="route='trees': model OddForest"):
        rl.model_reliance(forest, X, y, route="trees")


def test_a_first_layer_is_compared_on_replaced_rows(monkeypatch):
    believe(monkeypatch)
    X, y = data(40)
    high = (X @ np.ones((3, 2))).sum(axis=1).max()

    class Outside(rl.models.FirstLayer):
        def __call__(self, X):
            return np.minimum(super().__call__(X), high)

    model = Outside(np.ones((3, 2)), 0.0, lambda H: H.sum(axis=1))
    monkeypatch.setattr("reliance.exact.first_layer.FEWEST_COLUMNS", 1)
    with pytest.warns(UserWarning, match="route='first_layer': model .*Outside does not predict"):
        check_reliance(model, model, X, y, "first_layer")


def test_honest_models_are_believed_without_a_word(backend):
    X, y = data(30)
    xp_X, xp_y = backend.asarray(X), backend.asarray(y)
    coef = backend.asarray(np.array([3.0, 2.0, 0.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rl.model_reliance(rl.models.Linear(coef, 0.5), xp_X, xp_y, compare="difference")
        assert found.routes == ("linear", "linear", "unused")
        layer = rl.models.FirstLayer(coef[:, None], 0.5, lambda H: H[:, 0])
        behind = rl.model_reliance(layer, xp_X, xp_y, compare="difference", route="first_layer")
    assert set(behind.routes) == {"first_layer"}
    for j in range(3):
        expected = pairs_risk(lambda Z: Z @ np.array([3.0, 2.0, 0.0]) + 0.5, X, y, j)
        np.testing.assert_allclose([found.replaced_risk[j], behind.replaced_risk[j]], expected, rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# The sample


@pytest.mark.parametrize(("n", "p"), [(2, 1), (50, 3), (50, 700)])
def test_every_column_is_replaced_by_the_values_of_another_row(n, p):
    X = np.random.default_rng(0).normal(size=(n, p))
    found = probes.probe(X, [(j,) for j in range(p)], X[:, 0])
    assert len(found.block) <= 544
    assert found.mask.any(axis=0).all()
    for row, own, mask in zip(found.block, found.own, found.mask, strict=True):
        assert any(np.array_equal(own, x) for x in X)
        assert np.array_equal(row[~mask], own[~mask])
        assert not mask.any() or any(np.array_equal(row[mask], x[mask]) for x in X)
    if 64 * p <= 512:
        assert np.max(found.block, axis=0).tolist() == X.max(axis=0).tolist()


def test_the_sample_keeps_to_the_memory():
    X = np.zeros((10, 1000))
    assert probes.probe(X, [(j,) for j in range(1000)], memory=10**6).block.nbytes <= 2 * 16 * 8000


# ---------------------------------------------------------------------------------------------------------------------
# Trees that were read before


@pytest.mark.parametrize("kind", ["refitted", "changed in place"])
def test_trees_that_change_between_calls_are_read_again(kind):
    """Both fits agree on the rows of X, and nowhere else: what was kept must be known by its trees."""
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = DecisionTreeRegressor(random_state=0).fit(rows, rows[:, 0] + 2.0 * rows[:, 1])
    X = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    y = np.array([0.0, 3.0, 0.0, 3.0])
    torch_X, torch_y = torch.from_numpy(X), torch.from_numpy(y)
    rl.model_reliance(model, torch_X, torch_y, compare="difference")
    if kind == "refitted":
        model.fit(rows, 2.0 * rows[:, 0] + rows[:, 1])
    else:
        leaves = model.tree_.apply(rows.astype(np.float32))
        model.tree_.value[leaves[1]], model.tree_.value[leaves[2]] = 7.0, 9.0
    np.testing.assert_array_equal(model.predict(X), y)
    found = rl.model_reliance(model, torch_X, torch_y, compare="difference")
    for j in range(2):
        np.testing.assert_allclose(found.replaced_risk[j], pairs_risk(model.predict, X, y, j), rtol=1e-12)
