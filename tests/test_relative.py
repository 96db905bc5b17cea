"""Relative importance: against literal loops, its theorems, its random numbers, and every backend."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest

import oracles
import reliance as rl
from methods import KEY, SHIFTS, donor_table
from relative_cases import Counted, base_rows, correlated, regression, relative_importance, scrambled_table
from reliance import plans
from reliance._core import streams
from reliance.samplers import residual as samplers
from reliance.samplers.residual import KNN, OLS, Gaussian, Leaves, Residual

# Intervals of a few rows are compared here, not trusted.
pytestmark = pytest.mark.filterwarnings("ignore:the losses of .* are very skewed:UserWarning")

NORMAL = Gaussian("normal")
RESIDUAL = Residual(OLS())  # quick, and refitted like any other regressor
DRAWS = 4


def formula(x):
    return 1.2 * x[..., 0] - x[..., 1] * x[..., 2] + 0.3 * x[..., 3]


def relative(X, y, model=formula, **options):
    return relative_importance(model, X, y, **{"draws": SHIFTS(DRAWS), "rng": KEY, **options})


def assert_same(one, other):
    for field in ("values", "std_error", "replaced_risk", "draws", "evaluations", "monte_carlo_share"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)
    np.testing.assert_array_equal(one.interval(0.9), other.interval(0.9))
    assert one.base_risk == other.base_risk
    assert one.names == other.names


# ---------------------------------------------------------------------------------------------------------------------
# Which columns are replaced, given which


@pytest.mark.once_per_device
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("design", [DRAWS, SHIFTS(DRAWS)], ids=["ranks", "shifts"])
def test_nothing_given_is_permutation_importance(backend, compare, weighted, design):
    X, y = (backend.asarray(a) for a in correlated(20))
    weights = backend.asarray(np.linspace(0.5, 2.0, 20)) if weighted else None
    options = {"compare": compare, "weights": weights, "keep": "rows", "features": [0, (1, 2)]}
    found = relative(X, y, given=[], draws=design, **options)
    plain = rl.permutation_importance(formula, X, y, draws=design, rng=KEY, **options)
    assert_same(found, plain)
    np.testing.assert_array_equal(found.row_values, plain.row_values)
    assert found.method == "relative_importance"


def test_the_rest_is_all_other_columns():
    X, y = correlated(30)
    rest = relative(X, y, given="rest", features=[0, (1, 3)])
    for place, (feature, others) in enumerate(((0, [1, 2, 3]), ((1, 3), [0, 2]))):
        alone = relative(X, y, given=others, features=[feature])
        assert rest.values[place] == alone.values[0]
        assert rest.std_error[place] == alone.std_error[0]


def test_the_rest_leaves_out_context():
    X, y = correlated(30)
    context = {"c": np.linspace(0, 1, 30)}
    assert_same(relative(X, y, given="rest", context=context), relative(X, y, given="rest"))


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("sampler", ["gaussian", "knn", "leaves"])
def test_a_feature_in_its_own_set_is_nothing(sampler, compare):
    X, y = correlated(30)
    found = relative(X, y, given=[1, 2], sampler=sampler, compare=compare, keep="rows")
    nothing = 1.0 if compare == "ratio" else 0.0
    for own in (1, 2):
        assert found.values[own] == nothing
        assert found.std_error[own] == 0.0
        assert found.interval()[own].tolist() == [nothing, nothing]
        assert found.test().p_value[own] == 1.0
        assert found.evaluations[own] == 0
        assert found.routes[own] == "given"
    assert (found.values[[0, 3]] != nothing).all()


def test_of_a_group_partly_given_the_rest_is_replaced():
    X, y = correlated(30)
    group = relative(X, y, given=[1, 3], features={"g": [0, 1]})
    alone = relative(X, y, given=[1, 3], features={"g": [0]})
    assert_same(group, alone)


def test_sets_by_name_and_by_index_and_twice():
    X, y = correlated(30)
    names = ["a", "b", "c", "d"]
    first = relative(X, y, given=[1, 3], names=names)
    for given in (["b", "d"], ("b", 3), [3, "b", 1], [np.int64(1), 3]):
        again = relative(X, y, given=given, names=names)
        np.testing.assert_allclose(again.values, first.values, rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Literal loops


@pytest.mark.paired("weighted", "compare", one_in=2)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_donors_residuals(backend, compare, weighted):
    """x~ = the least squares mean of the row + the residual of the shift's donor."""
    X, y = correlated(12)
    groups, given = [(0,), (2, 3)], [1]
    weights = np.linspace(0.0, 2.0, 12) if weighted else None
    found = relative(
        backend.asarray(X),
        backend.asarray(y),
        given=given,
        features=groups,
        compare=compare,
        weights=backend.asarray(weights),
        keep="rows",
    )
    X, y, weights = backend.rounded(X), backend.rounded(y), backend.rounded(weights)
    donors, mask = donor_table(plans.Shifts(12, DRAWS, KEY))
    means = [regression(X[:, given], X[:, list(g)], X[:, given]) for g in groups]
    tables = [
        scrambled_table(formula, X, y, g, mean, donors, mask, weights) for g, mean in zip(groups, means, strict=True)
    ]
    answers = [oracles.answer(table, compare) for table in tables]
    scale = 10 * max(np.abs(table.L).max() for table in tables)
    unit = scale / answers[0].base_risk if compare == "ratio" else scale
    backend.assert_close(found.values, [a.value for a in answers], unit)
    backend.assert_close(found.draws, [a.draws for a in answers], unit)
    backend.assert_close(found.row_values, [a.row_values for a in answers], unit)
    backend.assert_close(found.replaced_risk, [a.replaced_risk for a in answers], scale)


def test_normal_draws():
    """x~ = the mean + the residuals' standard deviation times a normal quantile of the row's own number."""
    from scipy.stats import norm

    X, y = correlated(14)
    found = relative(X, y, given=[1, 2], features=[0], sampler=NORMAL)
    mean = regression(X[:, [1, 2]], X[:, 0], X[:, [1, 2]])
    sd = np.sqrt(np.sum((X[:, 0] - mean) ** 2) / (14 - 3))
    total = 0.0
    for k in range(DRAWS):
        u = streams.uniforms(KEY, 0, 14, k, 1)[:, 0]
        for i in range(14):
            row = X[i].copy()
            row[0] = mean[i] + sd * norm.ppf(u[i])
            total += (y[i] - formula(row)) ** 2 - (y[i] - formula(X[i])) ** 2
    np.testing.assert_allclose(found.values, [total / (14 * DRAWS)], rtol=1e-11)


def test_strata_draws():
    """A row's donors are rows of its stratum, never itself."""
    X, y = correlated(24)
    X[:, 3] = np.arange(24) % 4
    ids, pairs = np.arange(24.0), set()
    table = np.column_stack([ids, X[:, 3], ids])  # column 0 will be a donor's number

    def model(x):
        pairs.update(zip(x[:, 0].astype(int).tolist(), x[:, 2].astype(int).tolist(), strict=True))
        return x[:, 0]

    relative(table, y, model, given=[1], features=[0], sampler=Leaves("exact"), draws=15)
    moved = {(donor, row) for donor, row in pairs if donor != row}
    assert all(donor % 4 == row % 4 for donor, row in moved)
    assert len(moved) > 24 * 3  # nearly all of the 5 others of each row


@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
def test_several_losses_are_one_evaluation(loss):
    X, y = correlated(30)
    model = Counted(formula)
    both = relative(X, y, model, given=[1], loss=["squared_error", loss])
    assert model.rows == base_rows(30) + both[loss].evaluations.sum()
    for name in ("squared_error", loss):
        assert_same(both[name], relative(X, y, given=[1], loss=name))
    sets = relative(X, y, given={"none": [], "one": [1]}, loss=["squared_error", loss])
    assert_same(sets[loss]["one"], both[loss])


def test_a_metric():
    X, y = correlated(30)
    found = relative(X, y, given=[1], features=[0], loss="rmse")
    donors, _ = donor_table(plans.Shifts(30, DRAWS, KEY))
    table = scrambled_table(formula, X, y, (0,), regression(X[:, [1]], X[:, [0]], X[:, [1]]), donors)
    expected = np.sqrt(table.L.mean(axis=0)).mean() - np.sqrt(table.l.mean())
    np.testing.assert_allclose(found.values, [expected], rtol=1e-12)
    assert found.std_error[0] > 0


@pytest.mark.parametrize("sampler", ["gaussian", "leaves", "knn"])
def test_a_metric_without_influences_has_no_population_error(sampler):
    X, y = correlated(30)
    worst = rl.Metric(lambda y, p: np.max(np.abs(y - p), axis=0), name="worst")
    found = relative(X, y, given={"none": [], "one": [1]}, features=[0], loss=worst, sampler=sampler)
    assert np.isfinite(found["one"].values).all()
    assert np.isnan(found["one"].std_error).all()
    assert np.isnan(found.delta("none", "one").std_error).all()


def test_inputs_of_several_dimensions():
    """Columns are numbered as in the flattened row."""
    X, y = correlated(30)
    deep = X.reshape(30, 2, 2)
    found = relative(deep, y, lambda x: formula(x.reshape(len(x), 4)), given=["x[0,1]"], features=None)
    flat = relative(X, y, given=[1])
    np.testing.assert_allclose(found.values, flat.values, rtol=1e-12)
    assert found.names[0] == "x[0,0]"


@pytest.mark.parametrize("sampler", ["gaussian", NORMAL, "knn"], ids=["donors", "normal", "knn"])
def test_integers_are_replaced_as_numbers(sampler):
    X, y = correlated(30)
    X = np.round(5 * X).astype(np.int64)
    assert_same(
        relative(X, y, given=[1], sampler=sampler), relative(X.astype(np.float64), y, given=[1], sampler=sampler)
    )


def test_labels_are_not_needed():
    X, _ = correlated(30)
    found = relative(X, None, lambda x: x[:, 0], given=[1], features=[0, 3], loss="prediction_shift")
    assert found.values[0] > 0
    assert found.values[1] == 0


# ---------------------------------------------------------------------------------------------------------------------
# Several sets, and their differences


SAMPLERS = {"donors": "gaussian", "normal": NORMAL, "leaves": Leaves(min_leaf=8), "knn": "knn", "residual": RESIDUAL}
SETS = {"none": [], "one": [1], "two": [1, 2], "rest": "rest"}


@pytest.mark.parametrize("name", SAMPLERS)
def test_sets_share_rows_and_random_numbers(name):
    """Each is what it is alone."""
    X, y = correlated(40)
    model = Counted(formula)
    found = relative(X, y, model, given=SETS, features=[0, 3], sampler=SAMPLERS[name])
    assert list(found) == list(SETS)
    assert len(found) == 4
    assert model.rows == base_rows(40) + sum(result.evaluations.sum() for result in found.values())
    for key, given in SETS.items():
        alone = relative(X, y, given=given, features=[0, 3], sampler=SAMPLERS[name])
        if key == "none" and name in ("knn", "residual"):  # its error is the jackknife's, as that of the other sets
            np.testing.assert_array_equal(found[key].values, alone.values)
            np.testing.assert_allclose(found[key].std_error, alone.std_error, rtol=0.7)
        else:
            assert_same(found[key], alone)


def test_any_mapping_of_sets():
    X, y = correlated(30)
    sets = MappingProxyType({"none": [], "one": [1]})
    assert list(relative(X, y, given=sets)) == ["none", "one"]


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_delta_is_the_difference(name, compare):
    X, y = correlated(40)
    found = relative(X, y, given=SETS, features=[0, 3], sampler=SAMPLERS[name], compare=compare)
    for first, second in (("none", "one"), ("one", "rest"), ("rest", "two")):
        delta = found.delta(first, second)
        assert delta.names == ("x0", "x3")
        np.testing.assert_array_equal(delta.values, found[first].values - found[second].values)
        # The same tree may be grown of both sets: then there is no difference, and no error.
        assert ((delta.std_error > 0) == (delta.values != 0)).all()
        assert (delta.degrees_of_freedom == (19 if name in ("knn", "residual") else 39)).all()
        low, high = delta.interval(0.9).T
        np.testing.assert_allclose((low + high) / 2, delta.values)
        back = found.delta(second, first)
        np.testing.assert_array_equal(back.values, -delta.values)
        np.testing.assert_allclose(back.std_error, delta.std_error)
        np.testing.assert_allclose(back.test().p_value, delta.test().p_value)
    same = found.delta("one", "one")
    assert same.std_error.tolist() == [0.0, 0.0]
    assert same.test().p_value.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", SAMPLERS)
def test_pairing_makes_the_difference_sharper(name):
    """Sets that say nearly the same of the feature: what they share cancels."""
    X, y = correlated(200, seed=1)
    context = {"twin": X[:, 1] + 0.05 * np.random.default_rng(0).normal(size=200)}
    found = relative(X, y, given={"a": [1], "b": ["twin"]}, context=context, features=[0], sampler=SAMPLERS[name])
    unpaired = np.hypot(found["a"].std_error, found["b"].std_error)
    # Leaves jump: a row may be in quite another one.
    assert (found.delta("a", "b").std_error < (0.9 if name == "leaves" else 0.5) * unpaired).all()


def test_a_feature_of_all_columns_is_compared_by_the_jackknife_too():
    """Given the rest, which is nothing, it is not refitted; in a difference with a refitted set it has to be."""
    X, y = correlated(40)
    sets = {"rest": "rest", "one": [3]}
    found = relative(X, y, given=sets, features=[(0, 1, 2, 3), 0], sampler="knn")
    assert found["rest"].routes == ("marginal", "knn")
    errors = [result.std_error for result in found.values()]
    assert (found.delta("rest", "one").std_error > 0.3 * np.abs(errors[0] - errors[1])).all()
    assert (found.influences["rest"].replicates.std(axis=1) > 0).all()


def chain(n, seed, strength):
    """G -> X_j, and N = G plus ``strength`` times X_j's own part plus noise."""
    rng = np.random.default_rng(seed)
    g, own = rng.normal(size=(2, n))
    x = g + own
    other = g + strength * own + rng.normal(size=n)
    y = x + other + rng.normal(size=n)
    return np.stack([x, g, other], axis=1), y


@pytest.mark.parametrize("name", SAMPLERS)
def test_theorem_2(name):
    """X_j independent of N given G: no difference between G and G with N; dependent: one that is seen."""
    sets = {"G": [1], "G+N": [1, 2]}
    p_values = {}
    for strength in (0.0, 2.0):
        X, y = chain(400, 3, strength)
        found = relative(X, y, lambda x: x[:, 0] + x[:, 2], given=sets, features=[0], sampler=SAMPLERS[name], draws=10)
        p_values[strength] = found.delta("G", "G+N").test().p_value[0]
    assert p_values[2.0] < 1e-3
    # Neighbours and leaves in two dimensions are farther away than in one: their draws do depend on N a little.
    assert p_values[0.0] > 1e-3 or name in ("knn", "leaves")


def test_a_set_that_is_not_there():
    X, y = correlated(30)
    found = relative(X, y, given={"none": [], "one": [1]})
    with pytest.raises(KeyError, match="'two' is not one of the sets 'none', 'one'"):
        found.delta("none", "two")
    with pytest.raises(KeyError, match="'two'"):
        found["two"]
    with pytest.raises(ValueError, match="alternative='more' is not known"):
        found.delta("none", "one").test("more")


def test_texts():
    X, y = correlated(30)
    found = relative(X, y, given={"none": [], "one": [1]}, features=[0])
    assert "given none:" in repr(found)
    assert "relative_importance" in repr(found)
    assert "x0" in repr(found.delta("none", "one"))


# ---------------------------------------------------------------------------------------------------------------------
# Context


@pytest.mark.once_per_device
@pytest.mark.parametrize("sampler", ["gaussian", "knn"])
def test_context_is_like_a_column_that_the_model_ignores(backend, sampler):
    X, y = correlated(24)
    inside = relative(
        backend.asarray(X), backend.asarray(y), lambda x: x[:, 0] - x[:, 1], given=[2, 3], features=[0], sampler=sampler
    )
    narrow = backend.asarray(X[:, :2].copy())
    for given, context in (
        (["c", "d"], {"c": X[:, 2].copy(), "d": X[:, 3].copy()}),
        (["both"], {"both": X[:, 2:].copy()}),
        (["c", "d"], {"unused": np.ones(24), "c": X[:, 2:3].copy(), "d": X[:, 3].copy()}),
    ):
        arrays = {name: backend.asarray(values) for name, values in context.items()}
        outside = relative(
            narrow,
            backend.asarray(y),
            lambda x: x[:, 0] - x[:, 1],
            given=given,
            context=arrays,
            features=[0],
            sampler=sampler,
        )
        backend.assert_close(outside.values, inside.values, 10.0)
        np.testing.assert_allclose(outside.std_error, inside.std_error, rtol=max(1e-9, 100 * backend.rtol))


def test_numpy_context_follows_numpy_rows_to_a_torch_module():
    torch = pytest.importorskip("torch")
    X, y = correlated(30)
    context = {"c": X[:, 1] + np.linspace(0, 1, 30)}
    net = torch.nn.Linear(4, 1).double()
    weight, bias = (p.detach().numpy() for p in (net.weight[0], net.bias))
    options = {"given": ["c"], "context": context, "fit_on": (X[:20], {"c": context["c"][:20]})}
    found = relative(X, y, net, **options)
    plain = relative(X, y, lambda x: x @ weight + bias, **options)
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-9, atol=1e-12)


def test_categories_in_context():
    """The model never saw the group that shifts a feature: given the group, little of the feature is left."""
    rng = np.random.default_rng(4)
    group = rng.integers(0, 3, size=300)
    X = np.stack([3.0 * group + rng.normal(size=300), rng.normal(size=300)], axis=1)
    y = X[:, 0] + rng.normal(size=300)
    sets = {"none": [], "group": ["group"]}
    found = relative(X, y, lambda x: x[:, 0], given=sets, context={"group": group}, sampler=Leaves("exact"))
    assert found["none"].values[0] == pytest.approx(2 * (9 * 2 / 3 + 1), rel=0.2)
    assert found["group"].values[0] == pytest.approx(2.0, rel=0.2)
    assert found.delta("none", "group").test().p_value[0] < 1e-10


# ---------------------------------------------------------------------------------------------------------------------
# Fitted on other rows


@pytest.mark.parametrize("name", ["donors", "normal", "residual"])
def test_training_rows_enter_the_error(name):
    """A sampler fitted on few rows is uncertain, on very many it is known."""
    X, y = correlated(100, seed=5)
    errors = {}
    for m in (15, 20_000 if name != "residual" else 3000):
        train, _ = correlated(m, seed=5)
        train = X[np.random.default_rng(0).integers(0, 100, m)] + 0.01 * train
        found = relative(X, y, given=[1, 2], features=[0], fit_on=(train, None), sampler=SAMPLERS[name])
        errors[m] = found.std_error[0]
    few, many = errors.values()
    assert few > 1.05 * many


def test_training_rows_make_the_means():
    X, y = correlated(16)
    train, _ = correlated(50, seed=6)
    found = relative(X, y, given=[1], features=[0], fit_on=(train, None))
    mean = regression(train[:, [1]], train[:, [0]], X[:, [1]])
    donors, _ = donor_table(plans.Shifts(16, DRAWS, KEY))
    expected = oracles.answer(scrambled_table(formula, X, y, (0,), mean, donors), "difference")
    np.testing.assert_allclose(found.values, [expected.value], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:feature .* alone in their stratum:UserWarning")
@pytest.mark.parametrize("name", SAMPLERS)
def test_training_rows_with_context(name):
    X, y = correlated(40)
    train, _ = correlated(60, seed=6)
    rng = np.random.default_rng(0)
    extra, more = rng.normal(size=(40, 2)), rng.normal(size=(60, 2))
    sets = {"none": [], "c": ["c"], "c+1": ["c", 1]}
    fit_on = (train, {"ignored": more[:, 0], "c": more})
    found = relative(X, y, given=sets, context={"c": extra}, fit_on=fit_on, features=[0, 1], sampler=SAMPLERS[name])
    assert np.isfinite(found["c"].values).all()
    assert (found.delta("none", "c+1").std_error[0] > 0).all()


# ---------------------------------------------------------------------------------------------------------------------
# The paper's lemmas


@pytest.mark.parametrize("given", [[], [1], [1, 2], "rest", ["c"]], ids=str)
@pytest.mark.parametrize("sampler", [*SAMPLERS.values(), "knockoffs"], ids=[*SAMPLERS, "knockoffs"])
def test_lemma_2_a_feature_that_the_model_ignores(sampler, given):
    X, y = correlated(40)
    context = {"c": np.random.default_rng(0).normal(size=40)}
    found = relative(X, y, lambda x: x[:, 0] - 2 * x[:, 1], given=given, context=context, features=[3], sampler=sampler)
    assert found.values.tolist() == [0.0]
    assert found.std_error.tolist() == [0.0]
    assert found.interval().tolist() == [[0.0, 0.0]]
    assert found.test().p_value.tolist() == [1.0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["donors", "normal", "residual"])
def test_lemma_1_a_feature_that_says_nothing_beyond_the_set(name, seed):
    """y and the others depend on G alone: given G, nothing; without it, much."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=300)
    X = np.stack([g + 0.7 * rng.normal(size=300), g, g + rng.normal(size=300)], axis=1)
    y = 2 * g + rng.normal(size=300)

    def model(x):
        return x[:, 0] + 0.5 * x[:, 1] + 0.5 * x[:, 2]

    found = relative(X, y, model, given={"none": [], "G": [1]}, features=[0], sampler=SAMPLERS[name])
    assert abs(found["G"].values[0]) < 4 * found["G"].std_error[0]
    assert found["none"].values[0] > 5 * found["none"].std_error[0]


@pytest.mark.parametrize("seed", range(3))
def test_lemma_1_in_strata(seed):
    """Of any shape: the spread of X_j differs between the groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, size=300)
    X = np.stack([group + (1 + group) * rng.exponential(size=300), group], axis=1)
    y = 2.0 * group + rng.normal(size=300)
    found = relative(X, y, lambda x: x[:, 0] + x[:, 1], given=[1], features=[0], sampler="leaves")
    assert abs(found.values[0]) < 4 * found.std_error[0]


def test_lemma_1_with_neighbours():
    """A neighbour's value belongs to the neighbour's G: with many rows it is next to the row's."""
    rng = np.random.default_rng(0)
    g = rng.uniform(-1, 1, size=2000)
    X = np.stack([np.sin(3 * g) + 0.5 * rng.normal(size=2000), g], axis=1)
    y = g**2 + rng.normal(size=2000)
    found = relative(X, y, lambda x: x[:, 0] + x[:, 1], given={"none": [], "G": [1]}, features=[0], sampler="knn")
    assert abs(found["G"].values[0]) < 4 * found["G"].std_error[0] + 0.02
    assert abs(found["none"].values[0]) > 0.3


# ---------------------------------------------------------------------------------------------------------------------
# Backends, blocks, evaluations


def deviation(backend):
    """float32 rounds means and residuals, and the model's sums."""
    return {"rtol": max(1e-9, 30 * backend.rtol), "atol": max(1e-10, 100 * backend.rtol)}


@pytest.mark.parametrize("name", ["donors", "normal", "knn", "leaves"])
def test_backends_agree(backend, name):
    X, y = correlated(22, seed=7)
    X[:, 3] = np.arange(22) % 3
    given = [3] if name == "leaves" else [1, 2]
    sampler = Leaves("exact") if name == "leaves" else SAMPLERS[name]
    options = {"given": given, "features": [0], "sampler": sampler}
    found = relative(backend.asarray(X), backend.asarray(y), **options)
    plain = relative(backend.rounded(X), backend.rounded(y), **options)
    np.testing.assert_allclose(found.values, plain.values, **deviation(backend))
    np.testing.assert_allclose(found.std_error, plain.std_error, **deviation(backend))
    assert found.routes == plain.routes


@pytest.mark.once_per_device
@pytest.mark.parametrize("name", ["donors", "normal", "leaves"])
def test_blocks_change_nothing_but_rounding(backend, name):
    X, y = (backend.asarray(a) for a in correlated(22, seed=8))
    results = [
        relative(X, y, given=[1], features=[0], sampler=SAMPLERS[name], run=rl.Run(block=block))
        for block in (None, 5, (7, 2), 999)
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other.values, results[0].values, **deviation(backend))
        np.testing.assert_allclose(other.std_error, results[0].std_error, **deviation(backend))


@pytest.mark.parametrize("fit_on", [None, 30], ids=["own rows", "others"])
@pytest.mark.parametrize("sampler", [*SAMPLERS.values(), "knockoffs"], ids=[*SAMPLERS, "knockoffs"])
def test_every_evaluation_is_counted(sampler, fit_on):
    X, y = correlated(40, seed=9)
    model = Counted(formula)
    training = None if fit_on is None else (correlated(fit_on, seed=10)[0], None)
    sets = {"none": [], "some": [1, 2]}
    found = relative(X, y, model, given=sets, features=[0, (1, 3), 2], sampler=sampler, fit_on=training)
    assert model.rows == base_rows(40) + sum(result.evaluations.sum() for result in found.values())


def test_the_same_seed_gives_the_same_numbers():
    X, y = correlated(40, seed=9)
    for sampler in SAMPLERS.values():
        assert_same(relative(X, y, given=[1], sampler=sampler), relative(X, y, given=[1], sampler=sampler))
    first, second = (relative(X, y, given=[1], sampler=NORMAL, rng=key).values[0] for key in (1, 2))
    assert first != second


def test_progress_is_told():
    X, y = correlated(30)
    told = []
    relative(
        X, y, given={"none": [], "one": [1]}, features=[0], progress=lambda done, total: told.append((done, total))
    )
    assert told
    assert all(a[0] <= b[0] for a, b in pairwise(told))


# ---------------------------------------------------------------------------------------------------------------------
# The error against the jackknife itself


@pytest.mark.parametrize("name", ["donors", "normal"])
def test_the_error_is_that_of_leaving_out_rows_and_fitting_again(name):
    """In closed form, against 20 fits without a group of rows: over a few data sets they agree on average."""

    class Refitted:
        """The same sampler, about which nothing is known."""

        def fit(self, X, target, given):
            self.fitted = (Gaussian() if name == "donors" else NORMAL).fit(X, target, given)
            return self

        def on(self, X):
            parts = self.fitted.on(X)
            if name == "donors":
                return samplers.Residuals(parts.mean, parts.residual)
            return samplers.ValueDraws(parts.uniforms, parts.values)

    ratios = []
    for seed in range(12):
        X, y = correlated(100, seed=100 + seed)
        options = {"given": [1, 2], "features": [0], "draws": 10}
        known = relative(X, y, sampler=SAMPLERS[name], **options)
        refitted = relative(X, y, sampler=Refitted(), **options)
        assert known.values[0] == pytest.approx(refitted.values[0], rel=1e-12)
        ratios.append(known.std_error[0] / refitted.std_error[0])
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.2)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def refused(error, match, X=None, y=None, **options):
    rows, labels = correlated(20)
    with pytest.raises(error, match=match):
        relative(rows if X is None else X, labels if y is None else y, **{"given": [1], **options})


class Silent:
    """A sampler whose draws are of no known form."""

    def fit(self, X, target, given):
        return self

    def on(self, X):
        return [1, 2, 3]


ONES = np.ones(20)
BAD = {
    "label": ({"given": ["y"]}, ValueError, "neither a feature nor a variable of context.*The label cannot be"),
    "unknown name": ({"given": ["age"]}, ValueError, "given names 'age'"),
    "index": ({"given": [4]}, ValueError, "given holds the index 4: X has the columns 0 to 3"),
    "negative index": ({"given": [-1]}, ValueError, "given holds the index -1"),
    "bare name": ({"given": "x1"}, TypeError, "given='x1' is a text: pass a list of names"),
    "number": ({"given": 1}, TypeError, "given=1 is a int: pass a list"),
    "truth": ({"given": [True]}, TypeError, "given holds True"),
    "nested": ({"given": [[1]]}, TypeError, "given holds \\[1\\]"),
    "empty mapping": ({"given": {}}, ValueError, "given is an empty mapping"),
    "context of another length": ({"context": {"c": ONES[:5]}}, ValueError, "context\\['c'\\] has shape \\(5,\\)"),
    "context of too many dimensions": ({"context": {"c": np.ones((20, 1, 1))}}, ValueError, "one entry or line"),
    "context of text": ({"context": {"c": np.asarray(["a"] * 20)}}, TypeError, "holds text"),
    "context that is no mapping": ({"context": ONES}, TypeError, "context is a ndarray: pass a mapping"),
    "name of a feature": ({"context": {"x2": ONES}}, ValueError, "'x2' is the name of a feature, too"),
    "nan in context": (
        {"given": ["c"], "context": {"c": np.where(np.arange(20) == 3, np.nan, 1.0)}},
        ValueError,
        "column 'c' of X .context variables come last. holds NaN",
    ),
    "fit_on without context": ({"fit_on": np.ones((9, 4))}, TypeError, "pass \\(X_train, context_train\\)"),
    "fit_on of another width": ({"fit_on": (np.ones((9, 3)), None)}, ValueError, "X_train has 3 columns but X has 4"),
    "fit_on lacks context": (
        {"context": {"c": ONES}, "fit_on": (np.ones((9, 4)), None)},
        ValueError,
        "context_train lacks 'c'",
    ),
    "fit_on with wider context": (
        {"context": {"c": ONES}, "fit_on": (np.ones((9, 4)), {"c": np.ones((9, 2))})},
        ValueError,
        "other widths",
    ),
    "sampler": ({"sampler": "vine"}, ValueError, "sampler='vine' is unknown: pass one of 'auto', 'gaussian'"),
    "sampler class": ({"sampler": KNN}, TypeError, "is no sampler"),
    "sampler without fit": ({"sampler": 3}, TypeError, "sampler=3 is no sampler"),
    "strange draws": ({"sampler": Silent()}, TypeError, "returned list: return samplers.Residuals, ValueDraws or"),
    "compare": ({"compare": "log"}, ValueError, "compare='log' is unknown"),
    "draws": ({"draws": 0}, ValueError, "draws=0 is too small"),
    "draws of a kind": ({"draws": 2.5}, TypeError, "draws=2.5 is not an integer"),
    "too many neighbours": ({"sampler": KNN(k=20)}, ValueError, "k=20 is more than the 19 other rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case):
    options, error, match = BAD[case]
    refused(error, match, **options)


def test_labels_as_context():
    _, y = correlated(20)
    for labels in (y, y.tolist()):
        refused(ValueError, "'c' equals y; the label cannot be conditioned on", y=labels, context={"c": y.copy()})


def test_arrays_of_another_kind():
    torch = pytest.importorskip("torch")
    refused(TypeError, "context\\['c'\\] is a torch array.* but X is a numpy array", context={"c": torch.ones(20)})
    refused(TypeError, "X_train is a torch array", fit_on=(torch.ones(9, 4), None))


def test_singular_sets():
    X, _ = correlated(20)
    X[:, 3] = X[:, 1] - 2 * X[:, 2]
    refused(ValueError, "given is singular: .*Drop such columns from given, or pass Gaussian", X, given=[1, 2, 3])
    X[:, 3] = 1.0
    refused(ValueError, "column 'x3' of X is constant", X, given=[3], features=[0])


def test_categories_have_no_mean():
    X, _ = correlated(20)
    X[:, 0] = np.arange(20) % 2
    for sampler in ("gaussian", NORMAL, RESIDUAL):
        refused(ValueError, "column 'x0' of X is categorical.*Use sampler='leaves' or 'knn'", X, sampler=sampler)


def test_a_row_alone_in_its_stratum_is_announced():
    X, y = correlated(20)
    X[:, 1] = np.arange(20) // 4
    X[[3, 17], 1] = [-1, -2]
    with pytest.warns(
        UserWarning, match="'x0': 2 rows are alone in their stratum and keep their own value.*rows 3, 17"
    ):
        found = relative(X, y, given=[1], features=[0], sampler=Leaves("exact"), keep="rows")
    assert found.row_values[0, [3, 17]].tolist() == [0.0, 0.0]


def test_draws_beyond_the_shifts_are_announced():
    X, y = correlated(8)
    with pytest.warns(UserWarning, match="draws=20 is more than the 7 shifts"):
        relative(X, y, given=[1], draws=SHIFTS(20))
