"""Algorithm reliance and cross-validated importance: literal refit loops, executors, failures, bad input."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from scipy import stats

import reliance as rl
from conftest import Backend
from reliance._core import arrays

N, P = 60, 4


def linear_data(n=N, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, P))
    y = X @ np.array([1.0, 0.5, 0.25, 0.0]) + generator.normal(size=n)
    return X, y


X, Y = linear_data()
SPLITS = [(np.delete(np.arange(N), np.arange(k, N, 3)), np.arange(k, N, 3)) for k in range(3)]


def fit_linear(X, y):
    """Least squares on NumPy arrays, at the top level of a module, so that it can be sent to another process."""
    return Plane(np.linalg.lstsq(np.c_[X, np.ones(len(X))], y)[0])


class Plane:
    def __init__(self, coef):
        self.coef = coef

    def __call__(self, X):
        return X @ self.coef[:-1] + self.coef[-1]


def literal_losses(columns, train, test, X=X, y=Y, loss=lambda y, f: (y - f) ** 2):
    """Refit on some columns, plain NumPy: the losses of the test rows."""
    design = np.column_stack([*(X[:, j] for j in columns), np.ones(len(X))])
    if not columns:
        design = np.ones((len(X), 1))
    coef = np.linalg.lstsq(design[train], y[train])[0]
    return loss(y[test], design[test] @ coef)


def without(j):
    return [k for k in range(P) if k != j]


# ---------------------------------------------------------------------------------------------------------------------
# Literal loops


@pytest.mark.parametrize("compare", ["difference", "ratio"])
@pytest.mark.parametrize("leave", ["out", "in"])
def test_test_set_equals_a_literal_loop(compare, leave):
    train, test = np.arange(40), np.arange(40, N)
    result = rl.algorithm_reliance(fit_linear, X[train], Y[train], cv=(X[test], Y[test]), compare=compare, leave=leave)
    reference = literal_losses(list(range(P)) if leave == "out" else [], train, test)
    for j in range(P):
        own = literal_losses(without(j) if leave == "out" else [j], train, test)
        lower, upper = (reference, own) if leave == "out" else (own, reference)
        value = upper.mean() / lower.mean() if compare == "ratio" else upper.mean() - lower.mean()
        np.testing.assert_allclose(result.values[j], value, rtol=1e-10)
        np.testing.assert_allclose(result.replaced_risk[j], own.mean(), rtol=1e-12)
        # Paired differences; for the ratio the delta method.
        change = upper - lower if compare == "difference" else (upper - value * lower) / lower.mean()
        np.testing.assert_allclose(result.std_error[j], change.std(ddof=1) / np.sqrt(test.size), rtol=1e-10)
        if compare == "difference":
            p = stats.ttest_rel(upper, lower, alternative="greater").pvalue
            np.testing.assert_allclose(result.test(adjust="none").p_value[j], p, rtol=1e-9)
    assert result.target == "fitted models"
    assert result.base_risk == pytest.approx(reference.mean(), rel=1e-12)
    assert result.refits == P + 1


@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_folds_equal_a_literal_loop(compare):
    result = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, compare=compare)
    full = [literal_losses(range(P), *split) for split in SPLITS]
    for j in range(P):
        left = [literal_losses(without(j), *split) for split in SPLITS]
        if compare == "difference":
            folds = np.array([a.mean() - b.mean() for a, b in zip(left, full, strict=True)])
            value, deviations = folds.mean(), folds
        else:
            folds = np.array([a.mean() / b.mean() for a, b in zip(left, full, strict=True)])
            value = np.mean(left) / np.mean(full)
            deviations = np.array([a.mean() - value * b.mean() for a, b in zip(left, full, strict=True)]) / np.mean(
                full
            )
        np.testing.assert_allclose(result.values[j], value, rtol=1e-10)
        np.testing.assert_allclose(result.folds[j], folds, rtol=1e-10)
        h = [
            a - b if compare == "difference" else (a - value * b) / np.mean(full)
            for a, b in zip(left, full, strict=True)
        ]
        own = np.concatenate(h).var(ddof=1)
        beyond = max(np.var(deviations, ddof=1) - own / 20, 0)
        error = np.sqrt((1 + 20 / 40) * own / N + (1 / 3 + 20 / 40) * beyond)
        np.testing.assert_allclose(result.std_error[j], error, rtol=1e-9)
        quantile = stats.t.ppf(0.95, N - 1)
        scale = np.exp(np.array([-1, 1]) * quantile * error / value) * value
        ends = value + np.array([-1, 1]) * quantile * error if compare == "difference" else scale
        np.testing.assert_allclose(result.interval(0.9)[j], ends, rtol=1e-9)
        changes = np.concatenate(left) - np.concatenate(full)
        if compare == "difference":
            rows = result.for_target("fitted models")
            np.testing.assert_allclose(rows.std_error[j], changes.std(ddof=1) / np.sqrt(N), rtol=1e-10)
            assert rows.degrees_of_freedom == N - 1
    assert result.target == "algorithm"
    assert result.degrees_of_freedom == N - 1


def test_an_estimator_is_cloned_and_equals_a_literal_loop():
    linear_model = pytest.importorskip("sklearn.linear_model")
    labels = (Y > 0).astype(int)
    estimator = linear_model.LogisticRegression()
    results = rl.algorithm_reliance(
        estimator, X, labels, cv=SPLITS, loss=["log_loss", "zero_one"], features=[0, (1, 3)], compare="difference"
    )
    assert not hasattr(estimator, "coef_")
    for place, columns in enumerate([[0], [1, 3]]):
        kept = [k for k in range(P) if k not in columns]
        log, wrong = [], []
        for train, test in SPLITS:
            for seen, sign in ((kept, 1), (list(range(P)), -1)):
                model = linear_model.LogisticRegression().fit(X[np.ix_(train, seen)], labels[train])
                chance = model.predict_proba(X[np.ix_(test, seen)])[np.arange(20), labels[test]]
                log.append(sign * -np.log(chance).mean())
                wrong.append(sign * (model.predict(X[np.ix_(test, seen)]) != labels[test]).mean())
        np.testing.assert_allclose(results["log_loss"].values[place], sum(log) / 3, rtol=1e-9)
        np.testing.assert_allclose(results["zero_one"].values[place], sum(wrong) / 3, atol=1e-12)
    assert results["log_loss"].names == ("x0", "x1+x3")


def test_weights_count_losses():
    weights = np.random.default_rng(5).uniform(0.5, 2.0, size=N)
    result = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, weights=weights)
    rows = np.concatenate([test for _, test in SPLITS])
    full = np.concatenate([literal_losses(range(P), *split) for split in SPLITS])
    left = np.concatenate([literal_losses(without(0), *split) for split in SPLITS])
    expected = np.sum(weights[rows] * left) / np.sum(weights[rows] * full)
    np.testing.assert_allclose(result.values[0], expected, rtol=1e-10)


def test_rows_that_several_splits_test_are_one_row():
    """Twice the same splits: the value stays, and so does the error for the fitted models."""
    once = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, target="fitted models", compare="difference")
    twice = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS * 2, target="fitted models", compare="difference")
    np.testing.assert_allclose(twice.values, once.values, rtol=1e-12)
    np.testing.assert_allclose(twice.std_error, once.std_error, rtol=1e-12)
    assert twice.n == N


@pytest.mark.once_per_device
def test_any_namespace(backend: Backend):
    """Arrays reach fit as they are, less a column: on every backend what NumPy gives."""
    seen = []

    def fit(A, b):
        seen.append(A)
        xp = arrays.namespace(A)
        # The slope of y on the sum of the columns, by closed formulas that every namespace has.
        s = xp.sum(A, axis=1)
        slope = xp.sum(s * b) / xp.sum(s * s)
        return lambda A: xp.sum(A, axis=1) * slope

    given = backend.asarray(X), backend.asarray(Y)
    result = rl.algorithm_reliance(fit, *given, cv=SPLITS[:2], features=[1])
    host, labels = backend.rounded(X), backend.rounded(Y)
    risks = []
    for columns in (list(range(P)), without(1)):
        losses = []
        for train, test in SPLITS[:2]:
            s = host[:, columns].sum(axis=1)
            slope = (s[train] @ labels[train]) / (s[train] @ s[train])
            losses.append((labels[test] - s[test] * slope) ** 2)
        risks.append(np.mean(losses))
    np.testing.assert_allclose(result.values, risks[1] / risks[0], rtol=10 * backend.rtol)
    assert {arrays.namespace(A) for A in seen} == {arrays.namespace(given[0])}
    assert {A.shape[1] for A in seen} == {P, P - 1}
    alone = rl.algorithm_reliance(lambda A, b: lambda A: 0 * A[:, 0], *given, cv=SPLITS[:1], leave="in", features=[0])
    np.testing.assert_array_equal(alone.values, [1.0])


def test_tables_lose_a_column():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"], index=np.arange(N)[::-1])
    seen = []

    def fit(A, b):
        seen.append(tuple(A.columns))
        model = fit_linear(A.to_numpy(), b)
        return lambda A: model(A.to_numpy())

    result = rl.algorithm_reliance(fit, frame, pd.Series(Y, index=frame.index), cv=SPLITS)
    np.testing.assert_allclose(result.values, rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS).values, rtol=1e-12)
    assert result.names == ("a", "b", "c", "d")
    assert ("a", "c", "d") in seen
    part = rl.algorithm_reliance(fit, frame[:40], Y[:40], cv=(frame[40:], Y[40:]), features=["b"], leave="in")
    plain = rl.algorithm_reliance(fit_linear, X[:40], Y[:40], cv=(X[40:], Y[40:]), features=[1], leave="in")
    np.testing.assert_allclose(part.values, plain.values, rtol=1e-12)


def test_a_fit_may_destroy_its_data():
    kept, labels = X.copy(), Y.copy()

    def fit(A, b):
        model = fit_linear(A, b)
        A[:], b[:] = 0.0, 0.0
        return model

    result = rl.algorithm_reliance(fit, X, Y, cv=(X, Y))
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(Y, labels)
    np.testing.assert_array_equal(result.values, rl.algorithm_reliance(fit_linear, X, Y, cv=(X, Y)).values)


def test_torch_modules_are_trained_by_fit():
    torch = pytest.importorskip("torch")

    def fit(A, b):
        module = torch.nn.Linear(A.shape[1], 1, dtype=torch.float64)
        plane = fit_linear(A.numpy(), b.numpy())
        with torch.no_grad():
            module.weight[:] = torch.from_numpy(plane.coef[:-1])
            module.bias[:] = plane.coef[-1]
        return module

    result = rl.algorithm_reliance(fit, torch.from_numpy(X), torch.from_numpy(Y), cv=SPLITS)
    np.testing.assert_allclose(result.values, rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS).values, rtol=1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Folds


def test_random_folds_are_equal_shares():
    labels = np.repeat([0, 1], [50, 10])
    tested = []

    def fit(A, b):
        tested.append(np.bincount(b, minlength=2))
        share = b.mean()
        return lambda A: np.full(len(A), share)

    result = rl.algorithm_reliance(fit, X, labels, cv=5, loss="log_loss", rng=3, features=[0])
    assert [counts.tolist() for counts in tested] == [[40, 8]] * 10
    assert result.folds.shape == (1, 5)
    again = rl.algorithm_reliance(fit_linear, X, Y, rng=3)
    np.testing.assert_array_equal(again.values, rl.algorithm_reliance(fit_linear, X, Y, cv=5, rng=3).values)
    other = rl.algorithm_reliance(fit_linear, X, Y, cv=5, rng=4)
    assert not np.array_equal(again.values, other.values)


def test_splitters_of_scikit_learn():
    model_selection = pytest.importorskip("sklearn.model_selection")
    cv = model_selection.KFold(4, shuffle=True, random_state=0)
    result = rl.algorithm_reliance(fit_linear, X, Y, cv=cv)
    listed = rl.algorithm_reliance(fit_linear, X, Y, cv=list(cv.split(X)))
    np.testing.assert_array_equal(result.values, listed.values)
    assert result.folds.shape == (P, 4)


# ---------------------------------------------------------------------------------------------------------------------
# Cross-validated importance


@pytest.mark.parametrize("method", ["permutation_importance", "ablation_importance", "model_reliance"])
def test_cross_validated_importance_is_the_mean_over_folds(method):
    options = {"features": [0, 3]} | ({} if method == "model_reliance" else {"draws": 5})
    result = rl.cross_validated_importance(fit_linear, X, Y, cv=SPLITS, method=method, rng=1, **options)
    measure = getattr(rl, method)
    folds = [measure(fit_linear(X[train], Y[train]), X[test], Y[test], rng=1, **options) for train, test in SPLITS]
    values = np.array([fold.values for fold in folds]).T
    np.testing.assert_allclose(result.folds, values, rtol=1e-12)
    np.testing.assert_allclose(result.values, values.mean(axis=1), rtol=1e-12)
    whole = [measure(fit_linear(X[train], Y[train]), X, Y, rng=1, **options).values for train, _ in SPLITS]
    moved = [fold.values - a - 2 * (a - np.mean(whole, axis=0)) for fold, a in zip(folds, whole, strict=True)]
    np.testing.assert_allclose(result.std_error, stats.sem(moved, axis=0), rtol=1e-10)
    models = result.for_target("fitted models")
    error = np.sqrt(np.sum([fold.std_error**2 for fold in folds], axis=0)) / 3
    np.testing.assert_allclose(models.std_error, error, rtol=1e-12)
    assert models.degrees_of_freedom == N - 3
    assert result.base_risk == pytest.approx(np.mean([fold.base_risk for fold in folds]))


def test_cross_validated_importance_of_one_model_covers_every_row():
    """With a fit that ignores its data and unequal folds, the base risk is that of all rows."""
    splits = [(np.arange(10, N), np.arange(10)), (np.arange(10), np.arange(10, N))]
    plane = fit_linear(X, Y)
    result = rl.cross_validated_importance(lambda A, b: plane, X, Y, cv=splits, rng=0, draws=5)
    assert result.base_risk == pytest.approx(np.mean((Y - plane(X)) ** 2), rel=1e-12)
    weights = np.linspace(1, 2, N)
    result = rl.cross_validated_importance(lambda A, b: plane, X, Y, cv=splits, rng=0, draws=5, weights=weights)
    assert result.base_risk == pytest.approx(np.average((Y - plane(X)) ** 2, weights=weights), rel=1e-12)


def test_cross_validated_importance_takes_functions_and_several_losses():
    def measure(model, X, y, rng, draws):
        return rl.permutation_importance(model, X, y, rng=rng, draws=draws)

    one = rl.cross_validated_importance(fit_linear, X, Y, cv=SPLITS, method=measure, rng=0, draws=3)
    two = rl.cross_validated_importance(
        fit_linear, X, Y, cv=SPLITS, rng=0, draws=3, loss=["squared_error", "absolute_error"]
    )
    np.testing.assert_array_equal(one.values, two["squared_error"].values)
    np.testing.assert_array_equal(one.std_error, two["squared_error"].std_error)
    assert two["absolute_error"].loss == "absolute_error"


# ---------------------------------------------------------------------------------------------------------------------
# Executors


class Backwards(Executor):
    """Waits for all its work, and does the last first."""

    def __init__(self):
        self.waiting = []

    def submit(self, work):
        self.waiting.append((Future(), work))
        if len(self.waiting) == 3 * (P + 1):
            for future, later in reversed(self.waiting):
                future.set_result(later())
        return self.waiting[-1][0]


def test_results_do_not_depend_on_workers_or_order():
    serial = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS)
    found = [rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, run=rl.Run(workers=jobs)) for jobs in (1, 3, -1)]
    found.append(rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, run=rl.Run(workers=Backwards())))
    with ThreadPoolExecutor(2) as pool:
        found.append(rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, run=rl.Run(workers=pool)))
        assert pool.submit(int, "7").result() == 7  # not shut down
    for result in found:
        np.testing.assert_array_equal(result.values, serial.values)
        np.testing.assert_array_equal(result.std_error, serial.std_error)


@pytest.mark.slow
def test_processes():
    serial = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS)
    null = rl.null_importance(fit_linear, X, Y, rounds=3, draws=3, rng=0)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, run=rl.Run(workers=pool))
        np.testing.assert_array_equal(result.values, serial.values)
        parallel = rl.null_importance(fit_linear, X, Y, rounds=3, draws=3, rng=0, run=rl.Run(workers=pool))
        np.testing.assert_array_equal(parallel.null, null.null)
        folds = rl.cross_validated_importance(fit_linear, X, Y, cv=SPLITS, rng=0, draws=5, run=rl.Run(workers=pool))
        assert folds.refits == 3
        with pytest.raises(TypeError, match=r"fit=.*<lambda> cannot be sent to another process .*workers=2"):
            rl.algorithm_reliance(lambda A, b: None, X, Y, run=rl.Run(workers=pool))


def test_progress_counts_fits(capsys):
    calls = []
    rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(k + 1, 15) for k in range(15)]
    rl.cross_validated_importance(fit_linear, X, Y, cv=SPLITS, rng=0, draws=5, progress=True)
    assert "3/3" in capsys.readouterr().err.replace(".00", "")


# ---------------------------------------------------------------------------------------------------------------------
# Failures


@pytest.mark.parametrize("jobs", [None, 3])
def test_a_failing_refit_names_its_feature_and_loses_nothing(jobs):
    def fit(A, b):
        if A[0, 0] == X[0, 1]:  # without x0, where row 0 is fitted: splits 1 and 2
            raise ZeroDivisionError("no such model")
        return fit_linear(A, b)

    with pytest.raises(
        rl.RefitError, match=r"refit without 'x0', split . failed, and 1 more: Zero.*: no such"
    ) as caught:
        rl.algorithm_reliance(fit, X, Y, cv=SPLITS, run=rl.Run(workers=jobs))
    whole = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS)
    assert set(caught.value.failures) == {"without 'x0', split 1", "without 'x0', split 2"}
    assert caught.value.result.names == whole.names[1:]
    np.testing.assert_array_equal(caught.value.result.values, whole.values[1:])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_without_the_reference_there_is_nothing_to_compare():
    fits = []

    def fit(A, b):
        fits.append(A.shape[1])
        raise ZeroDivisionError("no such model")

    with pytest.raises(ZeroDivisionError, match="no such model") as caught:
        rl.algorithm_reliance(fit, X, Y, cv=SPLITS)
    assert fits == [P]  # nothing else is fitted in vain
    assert "with all features, split 0" in caught.value.__notes__[0]


def test_a_failing_fold_of_cross_validation():
    place = iter(range(3))

    def fit(A, b):
        if next(place) == 1:
            raise ZeroDivisionError("no such model")
        return fit_linear(A, b)

    with pytest.raises(rl.RefitError, match="refit of split 1 failed: ZeroDivisionError: no such model") as caught:
        rl.cross_validated_importance(fit, X, Y, cv=SPLITS, rng=0, draws=5)
    rest = rl.cross_validated_importance(fit_linear, X, Y, cv=[SPLITS[0], SPLITS[2]], rng=0, draws=5)
    assert rest.target == "fitted models"  # two of three folds
    np.testing.assert_array_equal(caught.value.result.values, rest.values)


@pytest.mark.parametrize("parallel", [False, True])
def test_interruption_keeps_what_was_finished(parallel):
    """Ctrl-C arrives in the fit, or while the main thread waits."""
    fits = []

    def fit(A, b):
        if len(fits) == 4:
            if not parallel:
                raise KeyboardInterrupt
            time.sleep(0.2)
        fits.append(threading.get_ident())
        return fit_linear(A, b)

    def report(done, total):
        if parallel and done == 3:
            raise KeyboardInterrupt

    options = {"run": rl.Run(workers=2), "progress": report} if parallel else {}
    with pytest.raises(KeyboardInterrupt) as caught:
        rl.algorithm_reliance(fit, X[:40], Y[:40], cv=(X[40:], Y[40:]), **options)
    whole = rl.algorithm_reliance(fit_linear, X[:40], Y[:40], cv=(X[40:], Y[40:]))
    result = caught.value.result
    assert 1 <= len(result.names) <= 3
    np.testing.assert_array_equal(result.values, [whole.values[whole.names.index(name)] for name in result.names])


# ---------------------------------------------------------------------------------------------------------------------
# The result


@pytest.fixture
def result():
    return rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, names=["a", "b", "c", "d"])


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files(result, tmp_path, suffix):
    path = tmp_path / f"result.{suffix}"
    result.save(path)
    read = rl.load(path)
    assert repr(read) == repr(result)
    assert read.to_dict() == result.to_dict()
    with pytest.raises(ValueError, match="read-only"):
        read.values[0] = 1.0


def test_tables_and_figures(result):
    ranked = result.ranked()
    assert ranked.names[0] == "a"
    assert np.all(np.diff(ranked.values) <= 0)
    text = repr(result)
    assert "target: the algorithm" in text
    assert "3 splits, 15 fits" in text
    assert "<table>" in result._repr_html_()
    frame = result.to_frame(0.9)
    np.testing.assert_array_equal(frame[["lower", "upper"]].to_numpy(), result.interval(0.9))
    pytest.importorskip("matplotlib").use("Agg")
    assert result.plot().get_xlabel() == "squared error, without / with the feature"


def test_metrics_without_rows_have_the_algorithm_as_their_only_target():
    metric = rl.Metric(lambda y, f: np.max(np.abs(y - f)), name="worst")
    result = rl.algorithm_reliance(fit_linear, X, Y, cv=SPLITS, loss=metric)
    full = [np.max(np.sqrt(literal_losses(range(P), *split))) for split in SPLITS]
    left = [np.max(np.sqrt(literal_losses(without(0), *split))) for split in SPLITS]
    np.testing.assert_allclose(result.values[0], np.mean(left) / np.mean(full), rtol=1e-10)
    assert np.isfinite(result.interval()).all()
    with pytest.raises(ValueError, match="'fitted models' needs losses of single rows"):
        result.for_target("fitted models").interval()
    held_out = rl.algorithm_reliance(fit_linear, X, Y, cv=(X, Y), loss=metric)
    assert "-" in repr(held_out)
    with pytest.raises(ValueError, match="losses of single rows"):
        held_out.test()


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def reliance(fit=fit_linear, X=X, y=Y, **options):
    return rl.algorithm_reliance(fit, X, y, **options)


def crossed(fit=fit_linear, X=X, y=Y, **options):
    return rl.cross_validated_importance(fit, X, y, **{"rng": 0, **options})


TEST = {"cv": (X, Y)}


@pytest.mark.parametrize(
    ("call", "options", "error", "message"),
    [
        (reliance, {"fit": Plane}, TypeError, "fit=Plane is a class: pass an instance"),
        (reliance, {"fit": 3}, TypeError, "fit=3 can fit nothing: pass a function"),
        (reliance, {"fit": lambda A, b: None}, TypeError, "returned None, which is not a model: return a function"),
        (crossed, {"fit": lambda A, b: 7.0}, TypeError, "returned 7.0, which is not a model"),
        (reliance, {"y": None}, ValueError, "y is None: an algorithm needs labels"),
        (crossed, {"y": None}, ValueError, "y is None: an algorithm needs labels"),
        (reliance, {"X": X[:, :, None]}, ValueError, r"X has shape \(60, 4, 1\): a column can be left out of"),
        (reliance, {"X": X[:, :1]}, ValueError, "feature 'x0' is all that X has: .*leave='in'"),
        (reliance, {"features": [(0, 1, 2, 3)]}, ValueError, "is all that X has"),
        (reliance, {"X": X[:9]}, ValueError, "y has shape"),
        (reliance, {"cv": (X, None)}, ValueError, r"cv is a tuple with None: a test set is \(X_test, y_test\)"),
        (reliance, {"cv": (None, Y)}, ValueError, r"cv is a tuple with None: a test set is \(X_test, y_test\)"),
        (reliance, {"cv": SPLITS[0]}, ValueError, r"X_test has shape .* but X has \(60, 4\)"),
        (reliance, {"cv": None}, TypeError, "cv=None: pass a number of folds"),
        (reliance, {**TEST, "rng": 0}, ValueError, "rng is given but nothing is drawn"),
        (reliance, {"cv": SPLITS, "rng": 0}, ValueError, "rng is given but nothing is drawn"),
        (reliance, {"cv": (X[:, :2], Y)}, ValueError, r"X_test has shape \(60, 2\) but X has \(60, 4\)"),
        (reliance, {**TEST, "target": "algorithm"}, ValueError, "needs several fits .*pass folds, cv=5"),
        (reliance, {"target": "model"}, ValueError, "target='model' is unknown: .*'fitted models', 'algorithm'"),
        (reliance, {"leave": "both"}, ValueError, "leave='both' is unknown: .*'out', 'in'"),
        (reliance, {"compare": "quotient"}, ValueError, "compare='quotient' is unknown"),
        (reliance, {"loss": "prediction_shift"}, ValueError, "compares a model with itself"),
        (reliance, {"weights": Y}, ValueError, "weights holds negative values"),
        (reliance, {"run": 2}, TypeError, "run=2: pass how the work is done as rl.Run"),
        (reliance, {"cv": 1}, ValueError, "cv=1 is too small"),
        (reliance, {"cv": 31}, ValueError, "cv=31 is too large for 60 rows: .*at most 30"),
        (reliance, {"cv": "five"}, TypeError, "cv='five': pass a number of folds"),
        (reliance, {"cv": []}, ValueError, "cv has no split"),
        (reliance, {"cv": [1, 2]}, TypeError, "cv: split 0 is 1: give a pair of index arrays"),
        (reliance, {"cv": [([0, 1], [2])]}, ValueError, "split 0 has 1 test rows: at least 2"),
        (reliance, {"cv": [([0, 1], [1, 2])]}, ValueError, "row 1 is both fitted and tested in split 0"),
        (reliance, {"cv": [([0, 1], [2, 2])]}, ValueError, "split 0 tests a row twice"),
        (reliance, {"cv": [([0, 99], [2, 3])]}, ValueError, "split 0 names row 99, but X has the rows 0 to 59"),
        (reliance, {"cv": [([0.5], [2, 3])]}, TypeError, "training rows of split 0 are not row numbers"),
        (crossed, {"method": "shap"}, ValueError, "method='shap' is unknown: choose one of 'ablation_importance'"),
        (crossed, {"method": lambda *a, **k: 1.0}, TypeError, "returned float: it must be an Importance"),
        (crossed, {"keep": "rows"}, ValueError, "keep is given"),
        (crossed, {"cv": [([0, 1], [2, 3])], "target": "algorithm"}, ValueError, "needs several fits"),
        (crossed, {"cv": SPLITS[:2], "target": "algorithm"}, ValueError, "needs folds, each row tested once"),
    ],
)
def test_bad_input(call, options, error, message):
    with pytest.raises(error, match=message):
        call(**options)


def test_bad_questions_to_a_result(result):
    with pytest.raises(ValueError, match="was not measured: measure again with target='algorithm'"):
        crossed(cv=SPLITS, draws=5, target="fitted models").for_target("algorithm")
    with pytest.raises(ValueError, match="target='models' is unknown"):
        result.for_target("models")
    with pytest.raises(ValueError, match="alternative='more' is not known"):
        result.test(alternative="more")
    with pytest.raises(ValueError, match="adjust='fdr' is not known"):
        result.test(adjust="fdr")
    with pytest.raises(ValueError, match=r"level=95 is not a confidence level"):
        result.interval(95)
    with pytest.raises(ValueError, match="divides by the risk, which is 0"):
        reliance(y=X[:, 0] * 0.0)


def test_a_test_set_is_of_the_kind_of_the_training_set():
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="X_test is a torch array on cpu but X is a numpy array"):
        reliance(cv=(torch.from_numpy(X), Y))
    frame = pd.DataFrame(X, columns=list("abcd"))
    for test in (X, frame[["b", "a", "c", "d"]]):
        with pytest.raises(TypeError, match="X_test and X must be tables of one kind with equal columns"):
            reliance(X=frame, cv=(test, Y))


def test_a_module_does_not_train_itself():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="does not say how it is trained"):
        reliance(fit=torch.nn.Linear(4, 1))
