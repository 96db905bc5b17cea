"""Lists of models as classes: literal loops over models and pairs, one pass for all of them, samples of the rows."""

from __future__ import annotations

import tracemalloc
import warnings

import array_api_compat
import numpy as np
import pytest

import reliance as rl
from reliance._core.streams import resolve_key
from reliance.engine import executors, traced
from reliance.rashomon import finite

N = 14
BASE = N + 16 * -(-2 * N // 16) - 1  # rows of a base pass, and of the batch in which they are predicted once more


def product(X):
    return X[..., 0] * X[..., 1] + X[..., 2]


def bent(X):
    """Does not use the last column."""
    return array_api_compat.array_namespace(X).abs(X[..., 0]) + 0.5 * X[..., 1]


def column(X):
    """One output, as a column."""
    return (X[..., 0] + X[..., 1] * X[..., 2])[..., None]


def bad(X):
    return -9.0 * X[..., 0] * X[..., 0]


LISTED = {"product": product, "bent": bent, "column": column, "bad": bad}
METHODS = {False: rl.model_class_reliance, True: rl.conditional_model_class_reliance}


def made(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + np.abs(X[:, 0]) + 0.3 * rng.normal(size=n)


def squared(y, prediction):
    return float((y - np.reshape(prediction, ())) ** 2)


# ---------------------------------------------------------------------------------------------------------------------
# The oracle: a loop over rows and donors


def residuals(X, columns):
    """What a line through the other columns says of some columns, and what it leaves."""
    others = [j for j in range(X.shape[1]) if j not in columns]
    Z = np.column_stack([np.ones(len(X)), X[:, others]])
    fitted = Z @ np.linalg.lstsq(Z, X[:, columns])[0]
    return fitted, X[:, columns] - fitted


def pair_losses(predict, loss, X, y, columns, conditional=False):
    """L (n, n): the loss of row i with the columns of row k."""
    n, columns = len(X), list(columns)
    kept, given = residuals(X, columns) if conditional else (np.zeros((n, len(columns))), X[:, columns])
    L = np.empty((n, n))
    for i in range(n):
        for k in range(n):
            row = X[i].copy()
            row[columns] = X[i, columns] if i == k else kept[i] + given[k]
            L[i, k] = loss(y[i], predict(row))
    return L


def reliance_of(L, compare, weights=None):
    """Over all pairs of different rows; with weights, of rows that occur so often."""
    n = len(L)
    w = np.ones(n) if weights is None else weights
    base = np.sum(w * np.diag(L)) / np.sum(w)
    cells = np.outer(w, w) - np.diag(w)  # a row that occurs twice lends to its copy
    switched = np.sum(cells * L) / np.sum(cells)
    return switched / base if compare == "ratio" else switched - base


def expected(listed, loss, X, y, features, compare, conditional=False):
    """Risks (M,) and reliances (M, p)."""
    risks = np.array([np.mean([loss(t, predict(x)) for t, x in zip(y, X, strict=True)]) for predict in listed.values()])
    tables = [[pair_losses(f, loss, X, y, c, conditional) for c in features] for f in listed.values()]
    return risks, np.array([[reliance_of(L, compare) for L in row] for row in tables])


def assert_expected(found, risks, values, epsilon, rtol):
    inside = risks <= (1.0 + epsilon) * risks.min()
    np.testing.assert_array_equal(found.members.inside, inside)
    np.testing.assert_allclose(found.members.risks, risks, rtol=rtol)
    np.testing.assert_allclose(found.members.values[inside], values[inside], rtol=rtol, atol=rtol)
    for ends in (found.lower, found.achieved_lower):
        np.testing.assert_allclose(ends, values[inside].min(axis=0), rtol=rtol, atol=rtol)
    for ends in (found.upper, found.achieved_upper):
        np.testing.assert_allclose(ends, values[inside].max(axis=0), rtol=rtol, atol=rtol)


def test_pairs(backend):
    assert_pairs(backend.asarray, backend.rounded, "ratio", 10 * backend.rtol)


def test_differences_of_pairs():
    assert_pairs(np.asarray, np.asarray, "difference", 1e-12)


def assert_pairs(asarray, rounded, compare, rtol):
    X, y = made()
    own = [(0,), (1, 2), (2,)]
    risks, values = expected(LISTED, squared, rounded(X), rounded(y), own, compare)
    listed, given = rl.FiniteClass(LISTED), (asarray(X), asarray(y))
    found = rl.model_class_reliance(listed, *given, epsilon=20.0, compare=compare, features=own)
    assert_expected(found, risks, values, 20.0, rtol)
    assert found.members.inside.tolist() == [True, True, True, False]
    assert np.isnan(found.members.values[3]).all()
    # A model that does not use a feature does not rely on it, to the last digit, whoever is in the list with it.
    assert found.members.values[1, 2] == (1.0 if compare == "ratio" else 0.0)
    assert found.upper_models[0] in LISTED.values()


@pytest.mark.once_per_device
def test_scrambled_pairs(backend):
    X, y = made(1)
    risks, values = expected(LISTED, squared, backend.rounded(X), backend.rounded(y), [(1, 2)], "ratio", True)
    found = rl.conditional_model_class_reliance(
        rl.FiniteClass(LISTED), backend.asarray(X), backend.asarray(y), epsilon=20.0, features=[(1, 2)]
    )
    assert_expected(found, risks, values, 20.0, 100 * backend.rtol)


def test_values_that_repeat():
    """Donors of equal values are one donor, for all models at once."""
    X, y = made(2)
    X = np.round(X) + 0.0  # one zero, not two
    risks, values = expected(LISTED, squared, X, y, [(0,), (1,), (2,)], "ratio")
    calls = []
    counted = {"product": lambda X: (calls.append(len(X)), product(X))[1], "bent": bent, "column": column, "bad": bad}
    found = rl.model_class_reliance(rl.FiniteClass(counted), X, y, epsilon=20.0)
    assert_expected(found, risks, values, 20.0, 1e-12)
    assert sum(calls) == BASE + N * sum(len(np.unique(X[:, j])) for j in range(3))


@pytest.mark.parametrize("conditional", [False, True])
def test_estimators_trees_modules_and_functions(conditional):
    """Each by its own route, method and array type."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor

    X, y = made(3, n=10)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    listed = {
        "linear": LinearRegression().fit(X, y),
        "forest": RandomForestRegressor(3, random_state=0).fit(X, y),
        "network": network,
        "neighbours": KNeighborsRegressor(2).fit(X, y),
        "product": product,
        "single": lambda X: product(X).astype(np.float32),
    }
    rows = {
        name: (lambda x, m=model: m.predict(x[None])) if hasattr(model, "predict") else model
        for name, model in listed.items()
    }
    rows["network"] = lambda x: network(torch.from_numpy(x[None])).detach().numpy()
    rows["single"] = product
    risks, values = expected(rows, squared, X, y, [(0,), (1,), (2,)], "ratio", conditional)
    found = METHODS[conditional](rl.FiniteClass(listed), X, y, epsilon=100.0)
    assert_expected(found, risks, values, 100.0, 1e-5)
    exact = [0, 1, 2, 3, 4]
    np.testing.assert_allclose(found.members.values[exact], values[exact], rtol=1e-10)
    assert network.training


@pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
@pytest.mark.parametrize("text", [False, True])
def test_classifiers(loss, text):
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    X, scores = made(4, n=10)
    classes = np.array(["high", "low", "mid"]) if text else np.arange(3)
    y = classes[np.digitize(scores, np.quantile(scores, [0.3, 0.6]))]
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    listed = {"logistic": LogisticRegression().fit(X, y), "bayes": GaussianNB().fit(X, y), "tree": tree}
    if loss == "log_loss":
        rows = {name: (lambda x, m=model: m.predict_proba(x[None])[0]) for name, model in listed.items()}

        def literal(t, p):
            shown = np.clip(p[list(classes).index(t)], np.finfo(float).eps, 1 - np.finfo(float).eps)
            return -float(np.log(shown))

        if not text:  # two ways of saying the same
            bayes = listed["bayes"]
            listed["function"], rows["function"] = lambda X: bayes.predict_proba(X), rows["bayes"]
    else:
        rows = {name: (lambda x, m=model: m.predict(x[None])[0]) for name, model in listed.items()}

        def literal(t, p):
            return float(t != p)

    risks, values = expected(rows, literal, X, y, [(0,), (1,), (2,)], "difference")
    found = rl.model_class_reliance(rl.FiniteClass(listed, loss=loss), X, y, epsilon=9.0, compare="difference")
    assert_expected(found, risks, values, 9.0, 1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# One pass


def counted(monkeypatch):
    """How many blocks the engine fills."""
    blocks = []
    for executor in (executors.InPlace, traced.Traced):
        own = executor.fill

        def fill(self, rows, tile, own=own):
            blocks.append((rows, tile.columns))
            own(self, rows, tile)

        monkeypatch.setattr(executor, "fill", fill)
    return blocks


@pytest.mark.once_per_device
def test_blocks_are_filled_once_for_all_models(backend, monkeypatch):
    assert_one_pass(backend.asarray, rl.model_class_reliance, monkeypatch)


def test_scrambled_blocks_are_filled_once_for_all_models(monkeypatch):
    assert_one_pass(np.asarray, rl.conditional_model_class_reliance, monkeypatch)


def assert_one_pass(asarray, method, monkeypatch):
    X, y = made(5, n=40)
    filled, counts = counted(monkeypatch), {}
    for names in (["product"], ["product", "bent", "column"]):
        filled.clear()
        method(rl.FiniteClass({name: LISTED[name] for name in names}), asarray(X), asarray(y), epsilon=20.0, rng=0)
        counts[len(names)] = list(filled)
    assert counts[1] == counts[3]


@pytest.mark.parametrize("bootstrap", [None, 5])
def test_rows_that_each_model_sees(bootstrap):
    """One base pass with its rows once more, and each pair once: of good models, or of all if samples choose others."""
    X, y = made(6)
    seen = dict.fromkeys(LISTED, 0)

    def watched(name):
        def predict(X):
            seen[name] += len(X)
            return LISTED[name](X)

        return predict

    given = rl.FiniteClass({name: watched(name) for name in LISTED}, bootstrap=bootstrap)
    rl.model_class_reliance(given, X, y, epsilon=20.0, rng=0)
    whole = BASE + 3 * N * N
    assert seen == {"product": whole, "bent": whole, "column": whole, "bad": BASE if bootstrap is None else whole}


def test_wider_bounds_measure_only_more_models():
    X, y = made(7)
    seen = []
    models = {"best": lambda X: (seen.append(len(X)), product(X))[1], "bent": bent, "bad": bad}
    with pytest.warns(UserWarning, match="very wide"):
        found = rl.model_class_reliance(
            rl.FiniteClass(models), X, y, epsilon=0.1, reference="best", confidence=0.9, loss_bound=1e4
        )
    assert found.members.inside.tolist()[2] is False
    assert sum(seen) == BASE + 3 * N * N
    assert np.all(found.outer[:, 1] >= found.upper)


MANY = {f"m{k}": (lambda X, k=k: product(X) + 0.01 * k * X[..., 0]) for k in range(20)}


@pytest.mark.slow
def test_memory():
    """The outputs of twenty models are in the budget; besides, what is known of each model's base pass is kept."""
    X, y = made(8, n=200)
    memory = 2_000_000
    tracemalloc.start()
    rl.model_class_reliance(rl.FiniteClass(MANY), X, y, epsilon=9.0, run=rl.Run(memory=memory), features=[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < memory + 20 * 200 * 8 * 8


def test_models_that_do_not_fit_together_take_turns(monkeypatch):
    X, y = made(8, n=40)
    whole = rl.model_class_reliance(rl.FiniteClass(MANY), X, y, epsilon=9.0)
    filled = counted(monkeypatch)
    small = rl.model_class_reliance(rl.FiniteClass(MANY), X, y, epsilon=9.0, run=rl.Run(memory=60_000))
    np.testing.assert_allclose(small.members.values, whole.members.values, rtol=1e-12)
    assert sum(rows.start == 0 and columns.start == 0 for rows, columns in filled) > 1


def test_single_precision_and_integers_beside_doubles():
    """Predictions of another dtype are another stack."""
    X, y = made(9)
    listed = {
        "double": product,
        "another": bent,
        "single": lambda X: bent(X).astype(np.float32),
        "whole": lambda X: np.round(product(X)).astype(np.int64),
        "whole too": lambda X: np.round(bent(X)).astype(np.int64),
    }
    rows = {**listed, "single": bent, "whole": lambda x: np.round(product(x)), "whole too": lambda x: np.round(bent(x))}
    risks, values = expected(rows, squared, X, y, [(0,), (1,), (2,)], "ratio")
    found = rl.model_class_reliance(rl.FiniteClass(listed), X, y, epsilon=100.0)
    assert_expected(found, risks, values, 100.0, 1e-6)
    assert found.members.values[2, 2] == found.members.values[4, 2] == 1.0


@pytest.mark.slow
def test_functions_that_jax_cannot_trace():
    jax = pytest.importorskip("jax")
    X, y = made(10)

    def branching(X):
        return bent(X) if float(X[0, 0]) < 100.0 else product(X)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listed = rl.FiniteClass({"product": product, "branching": branching, "column": column})
        found = rl.model_class_reliance(listed, jax.numpy.asarray(X), jax.numpy.asarray(y), epsilon=20.0)
    (told,) = (str(w.message) for w in caught if "cannot be traced" in str(w.message))
    assert "branching" in told
    rows = {"product": product, "branching": bent, "column": column}
    risks, values = expected(rows, squared, X, y, [(0,), (1,), (2,)], "ratio")
    assert_expected(found, risks, values, 20.0, 1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# Samples of the rows


def literal_samples(X, y, samples, compare="ratio"):
    """Reliances (B, M, p) and risks (B, M) of each sample of the rows, as a data set of its own."""
    tables = [[pair_losses(f, squared, X, y, (j,)) for j in range(3)] for f in LISTED.values()]
    values = np.array([[[reliance_of(L, compare, w) for L in row] for row in tables] for w in samples])
    risks = np.array([[np.sum(w * np.diag(row[0])) / np.sum(w) for row in tables] for w in samples])
    return values, risks


@pytest.mark.parametrize("compare", ["ratio", "difference"])
def test_distribution(compare):
    """Samples to the first order: what is left is small beside the spread, and smaller with more rows."""
    left = []
    for n in (25, 75):
        X, y = made(11, n=n)
        found = rl.model_class_reliance(
            rl.FiniteClass(LISTED, bootstrap=40), X, y, epsilon=20.0, compare=compare, rng=5
        ).members
        drawn = finite._resamples(resolve_key(5), n, slice(0, 40))
        assert np.all(drawn.sum(axis=1) == n)
        values, risks = literal_samples(X, y, drawn, compare)
        np.testing.assert_allclose(found.sample_risks, risks, rtol=1e-10)
        inside = risks <= 21.0 * risks.min(axis=1, keepdims=True)
        np.testing.assert_array_equal(found.sample_inside, inside)
        spread = values.std(axis=0)
        off = np.sqrt(np.mean((found.sample_values - values) ** 2, axis=0))
        used = spread > 1e-9
        assert np.all(off[~used] < 1e-9)
        left.append(np.max(off[used] / spread[used]))
        assert inside.any(axis=1).all()
        chosen, weights = found.distribution(0)
        assert weights.sum() == pytest.approx(1.0)
        # Each sample counts equally, and within it each of its good models.
        mean = np.mean([found.sample_values[b, inside[b], 0].mean() for b in range(40)])
        assert np.sum(chosen * weights) == pytest.approx(mean)
    assert left[1] < min(left[0], 0.35), left


def test_quantiles():
    X, y = made(12, n=40)
    found = rl.model_class_reliance(rl.FiniteClass([product, bent], bootstrap=101), X, y, epsilon=50.0, rng=0).members
    assert found.sample_inside.all()
    for j in range(3):
        ordered = np.sort(found.sample_values[:, :, j].ravel())
        low, middle, high = found.quantiles([0.0, 0.5, 1.0])[j]
        assert low == ordered[0]
        assert high == ordered[-1]
        assert ordered[99] <= middle <= ordered[102]


def test_samples_without_an_error():
    """A ratio to a risk of 0 is infinite; for a feature that is not used it stays 1."""
    X, _ = made(15, n=12)
    y = (X[:, 0] > 0).astype(np.int64)
    y[0] = 1 - y[0]
    sign = rl.FiniteClass([lambda X: (X[:, 0] > 0).astype(np.int64)], loss="zero_one", bootstrap=60)
    found = rl.model_class_reliance(sign, X, y, epsilon=0.1, rng=0).members
    perfect = found.sample_risks[:, 0] == 0.0
    assert 0 < perfect.sum() < 60
    np.testing.assert_array_equal(np.isinf(found.sample_values[:, 0, 0]), perfect)
    np.testing.assert_array_equal(found.sample_values[:, 0, 1:], 1.0)


def test_no_distribution_without_samples():
    X, y = made()
    found = rl.model_class_reliance(rl.FiniteClass(LISTED), X, y, epsilon=20.0)
    with pytest.raises(ValueError, match="bootstrap=500"):
        found.members.distribution(0)


# ---------------------------------------------------------------------------------------------------------------------
# Errors, progress, interruption


def fragile(X):
    """Fine on the rows as they are."""
    known = np.isin(X[:, 0] * 1e3 + X[:, 1], KNOWN)
    return np.where(known, X[:, 0], np.nan)


KNOWN = made()[0][:, 0] * 1e3 + made()[0][:, 1]


def test_an_error_names_its_model():
    X, y = made()
    with pytest.raises(ValueError, match="model fragile returned predictions") as caught:
        rl.model_class_reliance(rl.FiniteClass({**LISTED, "the fourth": fragile}), X, y, epsilon=100.0)
    assert caught.value.__notes__ == ["This is about 'the fourth' of the list of models."]
    with pytest.raises(ValueError, match="one entry per row") as caught:
        rl.model_class_reliance(rl.FiniteClass({**LISTED, "short": lambda X: X[:1, 0]}), X, y, epsilon=1.0)
    assert "'short'" in caught.value.__notes__[0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_losses_that_need_something_of_predictions():
    X, y = made()
    counts = np.floor(np.abs(y) * 3)
    positive = {"one": lambda X: np.exp(0.1 * X[:, 0]), "two": lambda X: np.where(X[:, 0] > X[:, 1], 1.0, 2.0)}
    found = rl.model_class_reliance(rl.FiniteClass(positive, loss="poisson_deviance"), X, counts, epsilon=9.0)
    assert found.members.inside.all()
    best = {"zero": lambda X: np.where(np.isin(X[:, 0] * 1e3 + X[:, 1], KNOWN), 1.0, 0.0), **positive}
    with pytest.raises(ValueError, match="predictions > 0"):
        rl.model_class_reliance(rl.FiniteClass(best, loss="poisson_deviance"), X, counts, epsilon=9.0)


@pytest.mark.parametrize("conditional", [False, True])
def test_progress(conditional):
    X, y = made(13, n=150)
    reports = []
    METHODS[conditional](
        rl.FiniteClass({"a": product, "b": bent, "linear": rl.models.Linear(np.ones(3))}),
        X,
        y,
        epsilon=100.0,
        progress=lambda done, total: reports.append((done, total)),
    )
    done, totals = zip(*reports, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {3 * 3 * 150 * 150}
    assert done[-1] == totals[-1]
    assert len([d for d in done if d < totals[0]]) > 5


def test_interruption():
    torch = pytest.importorskip("torch")
    modules = [torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1)) for _ in range(2)]
    X, y = made(14, n=60)

    def stop(done, total):
        assert not any(module.training for module in modules)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rl.model_class_reliance(rl.FiniteClass(modules), X, y, epsilon=100.0, progress=stop)
    assert all(module.training for module in modules)


class Sure:
    def predict(self, X):
        return X[:, 0]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: rl.FiniteClass([]), ValueError, "models is empty"),
        (lambda: rl.FiniteClass({}), ValueError, "models is empty"),
        (lambda: rl.FiniteClass([product, bent, product]), ValueError, "'model 0' and 'model 2' are the same model"),
        (lambda: rl.FiniteClass({"a": SURE.predict, "b": SURE.predict}), ValueError, "are the same model"),
        (lambda: rl.FiniteClass(product), TypeError, "models is a function, not a list"),
        (lambda: rl.FiniteClass(Sure()), TypeError, "models is a Sure, not a list"),
        (lambda: rl.FiniteClass("forest"), TypeError, "models is a str, not a list"),
        (lambda: rl.FiniteClass(3), TypeError, "models=3 is not a list"),
        (lambda: rl.FiniteClass({1: product}), TypeError, "models has the name 1, a int"),
        (lambda: rl.FiniteClass([product], bootstrap=1.5), ValueError, "bootstrap=1.5"),
        (lambda: rl.FiniteClass([product], bootstrap=True), ValueError, "bootstrap=True"),
        (lambda: rl.FiniteClass([product], loss="r2"), ValueError, "loss of single rows"),
        (lambda: rl.FiniteClass([product], loss=["squared_error", "absolute_error"]), ValueError, "judged by one loss"),
    ],
)
def test_bad_lists(make, error, match):
    with pytest.raises(error, match=match):
        make()


SURE = Sure()


def test_bad_calls():
    X, y = made()
    for reference in (lambda X: X[:, 0], "nobody"):
        with pytest.raises(ValueError, match="not in the list of models, so it is outside the class"):
            rl.model_class_reliance(rl.FiniteClass(LISTED), X, y, epsilon=0.1, reference=reference)
    with pytest.raises(ValueError, match="the Rashomon set is empty"):
        rl.model_class_reliance(rl.FiniteClass(LISTED), X, y, epsilon=0.1, reference=1e-9)
    perfect = {"perfect": lambda X: product(X), "bent": bent}
    with pytest.raises(ValueError, match="the risk, which is 0 for 'perfect'"):
        rl.model_class_reliance(rl.FiniteClass(perfect), X, product(X), epsilon=0.1)
    found = rl.model_class_reliance(
        rl.FiniteClass(perfect), X, product(X), epsilon=99.0, relative=False, compare="difference"
    )
    assert found.reference_risk == 0.0
    assert found.members.inside.all()


def test_reference_in_the_list():
    X, y = made()
    by_name = rl.model_class_reliance(rl.FiniteClass(LISTED), X, y, epsilon=0.0, reference="bent")
    itself = rl.model_class_reliance(rl.FiniteClass(LISTED), X, y, epsilon=0.0, reference=bent)
    assert by_name.bound == itself.bound == by_name.members.risks[1]
    assert by_name.members.inside[1]


def test_two_devices():
    torch = pytest.importorskip("torch")
    modules = {"here": torch.nn.Linear(3, 1), "there": torch.nn.Linear(3, 1).to("meta")}
    with pytest.raises(ValueError, match="'here' is on cpu and 'there' on meta: move the models to one device"):
        rl.FiniteClass(modules)


def test_rows_move_once_to_the_modules():
    torch = pytest.importorskip("torch")
    X, y = made()
    modules = [torch.nn.Linear(3, 1) for _ in range(3)]
    seen = set()
    for module in modules:
        module.register_forward_pre_hook(lambda module, given: seen.add(given[0].dtype))
    found = rl.model_class_reliance(rl.FiniteClass(modules), X, y, epsilon=1e6)
    assert seen == {torch.float32}
    assert found.members.inside.all()
