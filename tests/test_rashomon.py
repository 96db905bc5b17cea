"""Model class reliance: linear classes against literal pairs and generic optimisers, finite classes, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import reliance as rl
from reliance._core.arrays import to_host

COMPARE = ("ratio", "difference")
METHODS = {False: rl.model_class_reliance, True: rl.conditional_model_class_reliance}


# ---------------------------------------------------------------------------------------------------------------------
# Oracles: literal pairs, and the ellipsoid in plain NumPy


def literal(X, y, coef, intercept, columns, conditional):
    """Switched risk and risk of one linear model, by a loop over rows and all their donors."""
    n, own = len(X), list(columns)
    rest = [j for j in range(X.shape[1]) if j not in own]
    Z = np.column_stack([np.ones(n), X[:, rest]])
    mean = Z @ np.linalg.lstsq(Z, X[:, own])[0] if conditional else np.zeros((n, len(own)))
    total = 0.0
    for i in range(n):
        predictions = X[i, rest] @ coef[rest] + (mean[i] + X[:, own] - mean) @ coef[own] + intercept
        losses = (y[i] - predictions) ** 2
        total += losses.sum() - losses[i]
    return total / (n * (n - 1)), np.mean((y - X @ coef - intercept) ** 2)


def value_of(switched, risk, compare):
    return switched / risk if compare == "ratio" else switched - risk


def excess_form(X, y, columns, conditional):
    """Switched risk less risk of coefficients b, as ``2 g'b + b'Ab``, from covariances in plain NumPy."""
    own, centred = list(columns), X - X.mean(axis=0)
    rest = [j for j in range(X.shape[1]) if j not in own]
    left = centred[:, own]
    if conditional and rest:
        left = left - centred[:, rest] @ np.linalg.lstsq(centred[:, rest], left)[0]
    g, A = np.zeros(X.shape[1]), np.zeros((X.shape[1],) * 2)
    g[own] = left.T @ (y - y.mean()) / (len(X) - 1)
    if not conditional:
        A[np.ix_(own, rest)] = -centred[:, own].T @ centred[:, rest] / (len(X) - 1)
    return g, A + A.T


def whitened(X, y, epsilon, intercept):
    """Least squares theta, the least risk, and a matrix: the good models are theta + matrix u with |u| <= 1."""
    Z = np.column_stack([X, np.ones(len(X))]) if intercept else X
    theta = np.linalg.lstsq(Z, y)[0]
    least = np.mean((y - Z @ theta) ** 2)
    return theta, least, np.sqrt(epsilon * least) * np.linalg.inv(np.linalg.qr(Z)[1] / np.sqrt(len(X)))


def searched(X, y, epsilon, columns, compare, conditional, intercept, rng, starts=4):
    """The ends of the range by SLSQP from several starts, in the ball that the Rashomon set is."""
    p = X.shape[1]
    g, A = excess_form(X, y, columns, conditional)
    theta, least, matrix = whitened(X, y, epsilon, intercept)

    def value(u):
        b = (theta + matrix @ u)[:p]
        excess, slope = b @ (2 * g + A @ b), matrix[:p].T @ (2 * (g + A @ b))
        risk = least * (1 + epsilon * (u @ u))
        if compare == "difference":
            return excess, slope
        return 1 + excess / risk, slope / risk - excess / risk**2 * 2 * epsilon * least * u

    ends = []
    for sign in (-1, 1):
        found = []
        for _ in range(starts):
            u = rng.normal(size=len(theta))
            u /= np.linalg.norm(u) * rng.uniform(1.01, 3)
            size = -sign * np.linalg.norm(value(u)[1])
            result = optimize.minimize(
                lambda u, size=size: tuple(part / size for part in value(u)),
                u,
                jac=True,
                method="SLSQP",
                constraints=[{"type": "ineq", "fun": lambda u: 1 - u @ u, "jac": lambda u: -2 * u}],
                options={"ftol": 1e-15, "maxiter": 150},
            )
            found.append(value(result.x / max(1.0, np.linalg.norm(result.x)))[0])
        ends.append(sign * max(sign * v for v in found))
    return ends


def made(seed, *, p=None, n=None, collinear=False, zero=False, centre=0.0):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 6)) if p is None else p
    n = int(rng.integers(p + 3, p + 20)) if n is None else n
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + centre
    if collinear:
        X[:, 1] = X[:, 0] + 1e-4 * X[:, 1]
    y = X @ rng.normal(size=p) + rng.normal(size=n)
    if zero:  # the least squares coefficient of the first column is 0: the hard case
        Z = np.column_stack([np.ones(n), X])
        left = X[:, 0] - np.delete(Z, 1, axis=1) @ np.linalg.lstsq(np.delete(Z, 1, axis=1), X[:, 0])[0]
        y = y - left * (left @ y) / (left @ left)
    return X, y


CASES = {
    "plain": {},
    "centred far away": {"centre": 100.0},
    "one column": {"p": 1},
    "few rows": {"p": 4, "n": 6},
    "near-collinear": {"collinear": True},
    "zero coefficient": {"zero": True},
}
EPSILONS = (1e-6, 0.05, 1.0, 100.0)


def groups(p):
    return [0] if p == 1 else [0, p - 1, (0, 1)] if p > 2 else [0, 1]


def as_columns(feature):
    return feature if isinstance(feature, tuple) else (feature,)


# ---------------------------------------------------------------------------------------------------------------------
# Exact


@pytest.mark.parametrize("conditional", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["MCR", "CMCR"])
@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("case", CASES)
def test_ends_are_those_of_a_search(case, compare, conditional):
    """To 1e-8, both ends of every problem."""
    for seed, epsilon in enumerate(EPSILONS):
        X, y = made(seed, **CASES[case])
        rng = np.random.default_rng(seed)
        intercept = seed != 1
        features = groups(X.shape[1])
        found = METHODS[conditional](
            rl.LinearClass(intercept=intercept), X, y, epsilon=epsilon, compare=compare, features=features
        )
        for j, feature in enumerate(features):
            low, high = searched(X, y, epsilon, as_columns(feature), compare, conditional, intercept, rng)
            atol = 1e-8 * max(1.0, abs(low), abs(high))
            np.testing.assert_allclose((found.lower[j], found.upper[j]), (low, high), rtol=0, atol=atol)


@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("case", CASES)
def test_extremal_models_are_good_and_achieve_the_ends(case, compare, conditional):
    measure = rl.conditional_model_reliance if conditional else rl.model_reliance
    for seed, epsilon in enumerate((0.0, *EPSILONS)):
        X, y = made(10 + seed, **CASES[case])
        features = groups(X.shape[1])
        found = METHODS[conditional](rl.LinearClass(), X, y, epsilon=epsilon, compare=compare, features=features)
        size = np.sqrt(np.mean(X**2, axis=0) / found.bound)
        ends = [(found.lower_models, found.lower_risks, found.achieved_lower)]
        ends += [(found.upper_models, found.upper_risks, found.achieved_upper)]
        for models, risks, values in ends:
            for j, feature in enumerate(features):
                model = models[j]
                switched, risk = literal(X, y, model.coef, model.intercept, as_columns(feature), conditional)
                # Large coefficients that cancel make predictions with as much rounding.
                slack = 1e-12 + 1e-14 * np.abs(model.coef) @ size
                assert risk <= found.bound * (1 + slack)
                np.testing.assert_allclose(risks[j], risk, rtol=10 * slack)
                np.testing.assert_allclose(values[j], value_of(switched, risk, compare), rtol=1e-8, atol=1e-9)
                if epsilon == 0.05:
                    again = measure(model, X, y, compare=compare, features=[feature]).values[0]
                    np.testing.assert_allclose(again, values[j], rtol=1e-8, atol=1e-9)
        # Exact: nothing between what is certified and what is achieved.
        scale = np.maximum(1.0, np.abs(found.achieved_upper))[:, None]
        assert np.all(found.gap >= 0.0)
        assert np.all(found.gap <= 1e-8 * scale)


# The solver is asked for more digits than it can always promise; the comparison is what judges them.
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("case", CASES)
def test_ends_are_those_of_a_semidefinite_program(case, compare, conditional):
    """The S-lemma: v is an upper end if v - value + mu (|u|^2 - 1) is nowhere negative, for some mu >= 0. To 1e-8."""
    cp = pytest.importorskip("cvxpy")
    precise = {f"tol_{name}": 1e-13 for name in ("gap_abs", "gap_rel", "feas")}
    for seed, epsilon in enumerate((0.02, 2.0, 50.0)):
        X, y = made(200 + seed, **CASES[case])
        p, intercept, feature = X.shape[1], seed != 1, groups(X.shape[1])[-1 if seed == 0 else 0]
        kind = rl.LinearClass(intercept=intercept)
        found = METHODS[conditional](kind, X, y, epsilon=epsilon, compare=compare, features=[feature])
        g, A = excess_form(X, y, as_columns(feature), conditional)
        theta, least, matrix = whitened(X, y, epsilon, intercept)
        b, turn = theta[:p], matrix[:p]
        linear = turn.T @ (g + A @ b)
        # Of (1, u): the value less that of theta, the risk in units of the least, and the ball.
        form = np.block([[np.zeros((1, 1)), linear[None, :]], [linear[:, None], turn.T @ A @ turn]])
        start, one = b @ (2 * g + A @ b), np.diag(np.append(1.0, np.zeros(len(theta))))
        ball = np.eye(len(theta) + 1) - 2 * one
        risk = least * (one + epsilon * (np.eye(len(theta) + 1) - one))
        if compare == "ratio":
            form = form - start / least * (risk - least * one)
        size = np.abs(form).max()
        for sign, mine in ((1, found.upper[0]), (-1, found.lower[0])):
            v, mu, psd = cp.Variable(), cp.Variable(nonneg=True), cp.Variable(form.shape, PSD=True)
            top = v * (risk / least if compare == "ratio" else one) - sign * form / size + mu * ball
            cp.Problem(cp.Minimize(v), [psd == top]).solve(solver="CLARABEL", **precise)
            end = start + sign * size * float(v.value)
            end = 1 + end / least if compare == "ratio" else end
            np.testing.assert_allclose(mine, end, rtol=0, atol=1e-8 * max(1.0, abs(start), size))


def test_best_alone():
    """epsilon = 0: one model, least squares, and the range is its reliance."""
    X, y = made(3, p=3, n=30)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0)
    Z = np.column_stack([np.ones(30), X])
    theta = np.linalg.lstsq(Z, y)[0]
    own = rl.model_reliance(rl.models.Linear(theta[1:], theta[0]), X, y).values
    np.testing.assert_allclose(found.lower, own, rtol=1e-10)
    np.testing.assert_allclose(found.upper, own, rtol=1e-10)
    np.testing.assert_allclose(found.reference_risk, np.mean((y - Z @ theta) ** 2), rtol=1e-12)
    assert found.bound == found.reference_risk


def test_far_above_the_best_risk_switching_can_help():
    X, y = made(5, p=2, n=40)
    difference = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=1e3, compare="difference")
    ratio = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=1e3)
    assert np.all(difference.lower < 0)
    assert np.all(ratio.lower < 1)


@pytest.mark.parametrize("compare", COMPARE)
def test_conditional_closed_form(compare):
    """One feature, least squares: the change of risk is 2 b s_ry, so the ends are those of a line and a parabola."""
    X, y = made(7, p=3, n=50)
    found = rl.conditional_model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, compare=compare)
    n = len(X)
    centred, target = X - X.mean(axis=0), y - y.mean()
    for j in range(3):
        rest = np.delete(centred, j, axis=1)
        left = centred[:, j] - rest @ np.linalg.lstsq(rest, centred[:, j])[0]
        variance, cross = left @ left / n, left @ target / n
        least, room = found.reference_risk, found.bound - found.reference_risk
        # Risk is least + variance (b - b_0)^2 + anything up to the bound, b_0 = cross / variance.
        b = cross / variance + np.linspace(-1, 1, 200_001) * np.sqrt(room / variance)
        excess = 2 * b * cross * n / (n - 1)
        risk = least + variance * (b - cross / variance) ** 2
        if compare == "difference":
            low, high = excess.min(), excess.max()
        else:
            both = np.concatenate([1 + excess / risk, 1 + excess / found.bound])
            low, high = both.min(), both.max()
        np.testing.assert_allclose((found.lower[j], found.upper[j]), (low, high), rtol=1e-8)


def test_absolute_epsilon_and_references():
    X, y = made(8, p=3, n=40)
    best = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.2)
    absolute = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.2 * best.reference_risk, relative=False)
    np.testing.assert_allclose(absolute.upper, best.upper)
    worse = rl.models.Linear(np.zeros(3), float(y.mean()))
    known = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, reference=worse)
    np.testing.assert_allclose(known.reference_risk, np.var(y))
    number = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, reference=float(np.var(y)))
    np.testing.assert_allclose(number.upper, known.upper)


# ---------------------------------------------------------------------------------------------------------------------
# With a ball


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
def test_ball(compare, conditional):
    rng = np.random.default_rng(0)
    for k in range(8):
        X, y = made(50 + k, p=3, n=30)
        if k % 4 == 3:
            X = np.column_stack([X, X[:, 0]])  # collinear: only the ball makes the class a sensible one
        free = np.linalg.norm(np.linalg.lstsq(X - X.mean(axis=0), y)[0])
        radius = float(free * (0.6, 1.05, 3.0)[k % 3])
        kind = rl.LinearClass(ridge=radius, intercept=k % 2 == 0)
        found = METHODS[conditional](kind, X, y, epsilon=0.3, compare=compare, features=[0, (0, 1)], rng=1)
        assert np.all(found.gap >= 0)
        for models, values in (
            (found.lower_models, found.achieved_lower),
            (found.upper_models, found.achieved_upper),
        ):
            for j, columns in enumerate([(0,), (0, 1)]):
                model = models[j]
                assert np.linalg.norm(model.coef) <= radius * (1 + 1e-12)
                switched, risk = literal(X, y, model.coef, model.intercept, columns, conditional)
                assert risk <= found.bound * (1 + 1e-12)
                np.testing.assert_allclose(value_of(switched, risk, compare), values[j], rtol=1e-8, atol=1e-8)
        # Members between the best and random models are inside the bounds.
        middle = found.lower_models[0]
        for _ in range(100):
            step = rng.normal(size=X.shape[1]) * rng.uniform(0, radius)
            coef = middle.coef + step
            coef *= min(1.0, radius / np.linalg.norm(coef))
            bias = float(np.mean(y - X @ coef)) if k % 2 == 0 else 0.0
            switched, risk = literal(X, y, coef, bias, (0,), conditional)
            if risk <= found.bound:
                assert found.lower[0] - 1e-9 <= value_of(switched, risk, compare) <= found.upper[0] + 1e-9


def test_a_wide_ball_changes_nothing():
    X, y = made(60, p=3, n=30)
    free = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1)
    wide = rl.model_class_reliance(rl.LinearClass(ridge=1e6), X, y, epsilon=0.1)
    np.testing.assert_allclose(wide.upper, free.upper)
    np.testing.assert_allclose(wide.lower, free.lower)
    assert wide.spread is None


# ---------------------------------------------------------------------------------------------------------------------
# Backends


@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
def test_backends(backend, conditional):
    """In float32, too, everything after the rows is float64: the answer is that of the rounded rows."""
    X, y = made(70, p=4, n=60, centre=3.0)
    found = METHODS[conditional](
        rl.LinearClass(), backend.asarray(X), backend.asarray(y), epsilon=0.05, features=[0, (1, 2), 3]
    )
    exact = METHODS[conditional](
        rl.LinearClass(), backend.rounded(X), backend.rounded(y), epsilon=0.05, features=[0, (1, 2), 3]
    )
    np.testing.assert_allclose(found.lower, exact.lower, rtol=1e-11)
    np.testing.assert_allclose(found.upper, exact.upper, rtol=1e-11)
    model = found.upper_models[0]
    batch = backend.asarray(X)
    predictions = model(batch)
    assert type(predictions) is type(batch)
    assert predictions.dtype == batch.dtype
    switched, risk = literal(
        backend.rounded(X),
        backend.rounded(y),
        np.asarray(to_host(model.coef), float),
        model.intercept,
        (0,),
        conditional,
    )
    np.testing.assert_allclose(switched / risk, found.upper[0], rtol=1e-8 if backend.dtype == "float64" else 1e-3)


def test_ball_on_every_backend(backend):
    X, y = made(71, p=3, n=30)
    kind, features = rl.LinearClass(ridge=0.5), [0, (1, 2)]
    found = rl.model_class_reliance(kind, backend.asarray(X), backend.asarray(y), epsilon=0.2, features=features)
    exact = rl.model_class_reliance(kind, backend.rounded(X), backend.rounded(y), epsilon=0.2, features=features)
    np.testing.assert_allclose(found.lower, exact.lower, rtol=1e-8)
    np.testing.assert_allclose(found.upper, exact.upper, rtol=1e-8)
    predictions = found.upper_models[0](backend.asarray(X))
    assert type(predictions) is type(backend.asarray(X))
    assert predictions.dtype == backend.asarray(X).dtype


def test_ball_with_equal_columns_and_as_many_parameters_as_rows():
    """The residual of least squares is not 0 just because there are as many coefficients as rows."""
    X = np.array([[0.0], [1.0], [2.0], [4.0]]) @ np.ones((1, 3))
    y = np.array([1.0, 0.0, 2.0, 1.0])
    for intercept, rows in ((True, 4), (False, 3)):
        found = rl.model_class_reliance(
            rl.LinearClass(ridge=10.0, intercept=intercept), X[:rows], y[:rows], epsilon=0.1
        )
        Z = np.column_stack([X[:rows, 0], np.ones(rows)]) if intercept else X[:rows, :1]
        left = y[:rows] - Z @ np.linalg.lstsq(Z, y[:rows])[0]
        np.testing.assert_allclose(found.reference_risk, np.mean(left**2), rtol=1e-10)


def test_integers_are_numbers():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 5, size=(40, 3)), rng.integers(0, 2, size=40)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1)
    floats = rl.model_class_reliance(rl.LinearClass(), X.astype(float), y.astype(float), epsilon=0.1)
    np.testing.assert_array_equal(found.upper, floats.upper)


def test_small_memory_and_far_columns():
    """Chunks, a mean that a sample of rows does not see, and columns far from 0 give the same moments."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 3)) + 1e4
    X[1, 0] += 1e6
    y = X[:, 1] - 1e4 + rng.normal(size=5000)
    one = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, run=rl.Run(memory="10KB"))
    other = rl.model_class_reliance(rl.LinearClass(), X - X.mean(axis=0), y, epsilon=0.1)
    np.testing.assert_allclose(one.upper, other.upper, rtol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Finite classes


def listed():
    X, y = made(80, p=3, n=40)
    rng = np.random.default_rng(0)
    theta = np.linalg.lstsq(np.column_stack([X, np.ones(40)]), y)[0]
    return X, y, {f"m{k}": rl.models.Linear(theta[:3] + 0.1 * k * rng.normal(size=3), theta[3]) for k in range(6)}


@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
@pytest.mark.parametrize("compare", COMPARE)
def test_finite_class(compare, conditional):
    X, y, models = listed()
    measure = rl.conditional_model_reliance if conditional else rl.model_reliance
    singles = {name: measure(model, X, y, compare=compare) for name, model in models.items()}
    found = METHODS[conditional](rl.FiniteClass(models), X, y, epsilon=0.5, compare=compare)
    best = min(single.base_risk for single in singles.values())
    good = [single for single in singles.values() if single.base_risk <= 1.5 * best]
    assert 1 < len(good) < len(models)
    np.testing.assert_allclose(found.lower, np.min([g.values for g in good], axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.upper, np.max([g.values for g in good], axis=0), rtol=1e-12)
    np.testing.assert_array_equal(found.gap, 0.0)
    assert found.members.inside.sum() == len(good)
    for k, single in enumerate(singles.values()):
        if found.members.inside[k]:
            np.testing.assert_allclose(found.members.values[k], single.values, rtol=1e-12)
    assert found.upper_models[0] in models.values()


def test_finite_class_never_outside_the_linear_one():
    X, y, models = listed()
    finite = rl.model_class_reliance(rl.FiniteClass(models), X, y, epsilon=0.5, reference="m0")
    linear = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.5, reference=models["m0"])
    assert finite.bound == pytest.approx(linear.bound)
    assert np.all(linear.lower <= finite.lower + 1e-12)
    assert np.all(finite.upper <= linear.upper + 1e-12)


def test_finite_class_bootstrap():
    """The spread of one model's resampled reliance is its standard error; the distribution weighs samples equally."""
    X, y, models = listed()
    alone = {"m0": models["m0"]}
    found = rl.model_class_reliance(rl.FiniteClass(alone, bootstrap=2000), X, y, epsilon=0.1, rng=0)
    single = rl.model_reliance(models["m0"], X, y)
    spread = np.std(found.members.sample_values[:, 0], axis=0)
    np.testing.assert_allclose(spread, single.std_error, rtol=0.15)
    several = rl.model_class_reliance(rl.FiniteClass(models, bootstrap=50), X, y, epsilon=0.5, rng=0)
    values, weights = several.members.distribution(0)
    np.testing.assert_allclose(weights.sum(), 1.0)
    assert values.shape == weights.shape
    low, middle, high = several.members.quantiles()[0]
    assert low <= middle <= high
    assert several.members.sample_inside.any(axis=1).all()


def test_finite_class_of_estimators_and_modules():
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression, Ridge

    X, y = made(81, p=3, n=30)
    fitted = [LinearRegression().fit(X, y), Ridge(10.0).fit(X, y)]
    found = rl.model_class_reliance(rl.FiniteClass(fitted), X, y, epsilon=10.0)
    assert found.upper_models[0](X).shape == (30,)
    modules = [torch.nn.Linear(3, 1).double(), torch.nn.Linear(3, 1).to("meta")]
    with pytest.raises(ValueError, match="move the models to one device"):
        rl.FiniteClass(modules)


# ---------------------------------------------------------------------------------------------------------------------
# Results, finite samples


def test_result():
    X, y = made(90, p=3, n=30)
    found = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.1, names=["a", "b", "c"])
    assert "LinearClass" in repr(found)
    assert "<table>" in found._repr_html_()
    assert found.to_dict()["names"] == ["a", "b", "c"]
    assert found.gap.shape == (3, 2)
    with pytest.raises(ValueError, match="read-only"):
        found.lower[0] = 0.0
    pd = pytest.importorskip("pandas")
    assert isinstance(found.to_frame(), pd.DataFrame)


def test_plot():
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = made(91, p=3, n=30)
    found = rl.model_class_reliance(rl.LinearClass(ridge=0.5), X, y, epsilon=0.1, rng=0)
    _, ax = plt.subplots()
    assert found.plot(ax=ax) is ax
    assert len(ax.get_yticklabels()) == 3
    with pytest.raises(ValueError, match="most=0"):
        found.plot(most=0)
    plt.close("all")


def test_outer_bounds():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    y = X[:, 0] + rng.uniform(-1, 1, size=20_000)
    reference = rl.models.Linear(np.array([1.0, 0.0]))
    call = {"epsilon": 0.05, "reference": reference}
    with pytest.warns(UserWarning, match="very wide"):
        found = rl.model_class_reliance(rl.LinearClass(), X, y, confidence=0.95, loss_bound=4.0, **call)
    assert np.all(found.outer[:, 0] < found.lower)
    assert np.all(found.outer[:, 1] > found.upper)
    assert "outer 95%" in repr(found)
    with pytest.warns(UserWarning, match="very wide"):
        wider = rl.model_class_reliance(rl.LinearClass(), X, y, confidence=0.95, loss_bound=400.0, **call)
    assert np.all(np.isinf(wider.outer[:, 1]))
    with pytest.raises(ValueError, match="loss_bound"):
        rl.model_class_reliance(rl.LinearClass(), X, y, confidence=0.95, **call)
    with pytest.raises(ValueError, match="not chosen on these rows"):
        rl.model_class_reliance(rl.LinearClass(), X, y, confidence=0.95, loss_bound=4.0, epsilon=0.1)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input

X0, Y0 = made(99, p=3, n=20)
TWICE = np.column_stack([X0, X0[:, 0]])
BAD = {
    "epsilon negative": ({"epsilon": -0.1}, ValueError, "epsilon=-0.1"),
    "epsilon nan": ({"epsilon": float("nan")}, ValueError, "epsilon=nan"),
    "empty set": ({"reference": 1e-9}, ValueError, "the Rashomon set is empty"),
    "y constant": ({"y": np.ones(20)}, ValueError, "y is constant"),
    "collinear": ({"X": TWICE}, ValueError, "ridge=radius"),
    "constant column": ({"X": np.column_stack([X0, np.ones(20)])}, ValueError, "columns 3 of X are constant"),
    "few rows": ({"X": X0[:3], "y": Y0[:3]}, ValueError, "3 rows for 3 columns"),
    "not linear": ({"reference": lambda X: X[:, 0]}, TypeError, "not known to be linear"),
    "other size": ({"reference": rl.models.Linear(np.ones(2))}, ValueError, "2 coefficients"),
    "outside ball": (
        {"reference": rl.models.Linear(np.ones(3)), "model_class": rl.LinearClass(ridge=0.1)},
        ValueError,
        "outside the class",
    ),
    "outside list": (
        {"reference": rl.models.Linear(np.ones(3)), "model_class": rl.FiniteClass([rl.models.Linear(np.ones(3))])},
        ValueError,
        "outside the class",
    ),
    "intercept": (
        {"reference": rl.models.Linear(np.ones(3), 1.0), "model_class": rl.LinearClass(intercept=False)},
        ValueError,
        "outside the class",
    ),
    "compare": ({"compare": "log"}, ValueError, "compare='log'"),
    "no class": ({"model_class": lambda X: X}, TypeError, "not a class of models"),
    "a type": ({"model_class": rl.LinearClass}, TypeError, "not a class of models"),
    "three dimensions": ({"X": X0[:, :, None]}, ValueError, r"needs X \(n, P\)"),
    "exact fit": ({"y": X0 @ np.ones(3)}, ValueError, "compare='difference'"),
    "y is None": ({"y": None}, ValueError, "y is None"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("conditional", [False, True], ids=["MCR", "CMCR"])
def test_bad_input(name, conditional):
    given, error, match = BAD[name]
    call = {"model_class": rl.LinearClass(), "X": X0, "y": Y0, "epsilon": 0.1, **given}
    with pytest.raises(error, match=match):
        METHODS[conditional](**call)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: rl.LinearClass(loss="huber"), "loss='huber'"),
        (lambda: rl.LinearClass(ridge=-1.0), "ridge=-1.0"),
        (lambda: rl.FiniteClass([]), "models is empty"),
        (lambda: rl.FiniteClass([rl.models.Linear(np.ones(1))], bootstrap=0), "bootstrap=0"),
        (lambda: rl.FiniteClass([rl.models.Linear(np.ones(1))], loss="auc"), "loss of single rows"),
    ],
)
def test_bad_classes(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_nan_in_X():
    X = X0.copy()
    X[0, 0] = np.nan
    with pytest.warns(UserWarning, match="NaN"), pytest.raises(ValueError, match="X holds NaN"):
        rl.model_class_reliance(rl.LinearClass(), X, Y0, epsilon=0.1)


def test_exact_fit_as_a_difference():
    y = X0 @ np.array([1.0, 0.0, 2.0])
    found = rl.model_class_reliance(rl.LinearClass(), X0, y, epsilon=0.1, relative=False, compare="difference")
    assert found.reference_risk == 0.0
    assert np.all(found.lower < found.upper)
