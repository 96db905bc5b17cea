"""What replaces a feature: given values, other rows, rows of the same label; against literal loops, and coverage."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance import plans
from reliance.plans import Groups

N, M = 24, 10
RNG = np.random.default_rng(11)
X = RNG.normal(size=(N, 2, 3))
Y = X[:, 0, 0] - X[:, 1, 2] + 0.3 * RNG.normal(size=N)
OTHERS = 1.0 + RNG.normal(size=(M, 2, 3))
LABELS = np.array([0, 1, 2] * 8)
MASKS = {"corner": np.array([[1, 0, 0], [0, 0, 0]], bool), "column": np.array([[0, 0, 1], [0, 0, 1]], bool)}


def model(Z):
    return Z[:, 0, 0] * (1.0 + 0.5 * Z[:, 1, 2]) - Z[:, 0, 2] * Z[:, 1, 2]


def loss(rows, labels):
    return (model(rows) - labels) ** 2


def written(values):
    """The mean change of the loss, feature by feature, with the values of each row."""
    found = []
    for mask in MASKS.values():
        rows = X.copy()
        rows[:, mask] = np.broadcast_to(values, X.shape)[:, mask]
        found.append(np.mean(loss(rows, Y) - loss(X, Y)))
    return np.array(found)


def lent(donors, lenders):
    """The same with rows ``(n, K)`` that lend."""
    return np.mean([written(lenders[donors[:, k]]) for k in range(donors.shape[1])], axis=0)


GIVEN = {
    "mean": ("mean", X.mean(axis=0)),
    "zero": ("zero", np.zeros(())),
    "number": (0.5, np.full((), 0.5)),
    "row": (OTHERS[0], OTHERS[0]),
    "rows": (X[::-1].copy(), X[::-1]),
    "function": (lambda Z: -0.5 * Z, -0.5 * X),
}


@pytest.mark.paired("kind", one_in=3)
@pytest.mark.parametrize("kind", GIVEN)
def test_given_values_are_those_of_a_loop(backend, kind):
    given, values = GIVEN[kind]
    given = backend.asarray(given) if isinstance(given, np.ndarray) else given
    rows, labels = backend.asarray(X), backend.asarray(Y)
    result = rl.permutation_importance(model, rows, labels, features=MASKS, replace=given)
    rtol = 1e-9 if backend.dtype == "float64" else 1e-4
    np.testing.assert_allclose(result.values, written(values), rtol=rtol)
    assert result.plan == "given values"
    assert result.draws_per_row == 1
    assert result.evaluations.tolist() == [N, N]


def test_the_interval_of_given_values_is_over_the_rows():
    result = rl.permutation_importance(model, X, Y, features=MASKS, replace="zero", keep="rows")
    spread = np.std(result.row_values, axis=1, ddof=1) / np.sqrt(N)
    np.testing.assert_allclose(result.std_error, spread)
    assert not result.fixed_data_error.any()
    assert not result.monte_carlo_share.any()
    ablated = rl.ablation_importance(model, X, Y, features=MASKS, replace="zero")
    np.testing.assert_array_equal(ablated.values, result.values)


def test_other_rows_lend_to_every_row(backend):
    """All of them: the literal double loop. Fewer: their own donors, no lender twice, all equally often."""
    rows, labels, others = (backend.asarray(a) for a in (X, Y, OTHERS))
    rtol = 1e-9 if backend.dtype == "float64" else 1e-4
    options = {"features": MASKS, "replace": rl.Donors(others), "rng": 3}
    everyone = np.broadcast_to(np.arange(M), (N, M))
    found = rl.permutation_importance(model, rows, labels, draws=M, **options)
    np.testing.assert_allclose(found.values, lent(everyone, OTHERS), rtol=rtol)
    assert not found.fixed_data_error.any()
    donors = plans.Lent(N, 4, 3, Groups(np.zeros(N, int), np.zeros(M, int))).donors(range(N), range(4))
    few = rl.permutation_importance(model, rows, labels, draws=4, **options)
    np.testing.assert_allclose(few.values, lent(donors, OTHERS), rtol=rtol)


@pytest.mark.parametrize(("n", "m"), [(24, 10), (10, 24), (7, 7), (5, 1)])
def test_lenders_are_used_evenly(n, m):
    plan = plans.Lent(n, m, 5, Groups(np.zeros(n, int), np.zeros(m, int)))
    donors = plan.donors(range(n), range(m))
    np.testing.assert_array_equal(np.sort(donors, axis=1), np.broadcast_to(np.arange(m), (n, m)))
    for k in range(m):
        uses = np.bincount(donors[:, k], minlength=m)
        assert uses.max() - uses.min() <= 1
    np.testing.assert_array_equal(plan.spread(np.arange(n, dtype=float)), [np.arange(n).sum()] * m)


def test_rows_borrow_within_their_label(backend):
    rows, labels = backend.asarray(X), backend.asarray(Y)
    rtol = 1e-9 if backend.dtype == "float64" else 1e-4
    plan = plans.Within(N, 7, 3, Groups(LABELS, LABELS))
    donors = plan.donors(range(N), range(7))
    assert (LABELS[donors] == LABELS[:, None]).all()
    for i in range(N):  # each of the seven others once
        assert sorted(donors[i]) == [k for k in range(N) if LABELS[k] == LABELS[i] and k != i]
    names = np.array(["spring", "summer", "winter"])[LABELS]
    found = rl.permutation_importance(
        model, rows, labels, draws=7, features=MASKS, replace=rl.Donors(within=names), rng=3
    )
    np.testing.assert_allclose(found.values, lent(donors, X), rtol=rtol)


def test_other_rows_of_the_same_label():
    of_others = np.arange(M) % 3
    replace = rl.Donors(OTHERS, within=LABELS, labels=of_others)
    draws = 12  # all of 4, 3 and 3 lenders equally often
    found = rl.permutation_importance(model, X, Y, draws=draws, features=MASKS, replace=replace, rng=1)
    values = []
    for mask in MASKS.values():
        changes = []
        for i in range(N):
            for k in np.flatnonzero(of_others == LABELS[i]):
                row = X[i : i + 1].copy()
                row[:, mask] = OTHERS[k, mask]
                changes.append(
                    (loss(row, Y[i : i + 1]) - loss(X[i : i + 1], Y[i : i + 1]))[0] / np.sum(of_others == LABELS[i])
                )
        values.append(np.sum(changes) / N)
    np.testing.assert_allclose(found.values, values)


def test_noise_has_the_moments_of_the_columns():
    Z = np.random.default_rng(0).normal(loc=3.0, scale=2.0, size=(4000, 2))
    found = rl.permutation_importance(lambda Z: Z[:, 0], Z, Z[:, 0], replace="noise", rng=0)
    np.testing.assert_allclose(found.values, [2 * 4.0, 0.0], rtol=0.08)


def test_single_rows():
    new = X[:2]
    found = rl.local_importance(model, new, Y[:2], features=MASKS, replace=rl.Donors(OTHERS))
    for i in range(2):
        for j, mask in enumerate(MASKS.values()):
            rows = np.repeat(new[i : i + 1], M, axis=0)
            rows[:, mask] = OTHERS[:, mask]
            change = np.mean(loss(rows, Y[i]) - loss(new[i : i + 1], Y[i]))
            np.testing.assert_allclose(found.values[i, j], change)
    assert not found.std_error.any()
    for replace, draws in (("mean", "all"), (rl.Donors(OTHERS), 4), (rl.Donors(within=LABELS), 5)):
        options = {"features": MASKS, "replace": replace, "draws": draws, "rng": 2}
        every = rl.local_importance(model, X, Y, **options)
        some = rl.local_importance(model, X, Y, rows=[20, 3], **options)
        np.testing.assert_allclose(some.values, every.values[[20, 3]])


def test_several_inputs_and_what_is_not_measured():
    inputs = {"a": X[:, 0], "ids": np.arange(N) % 4}

    def both(a, ids):
        return a[:, 0] * (1 + ids)

    def changed(values):
        return np.mean((values * (1 + inputs["ids"]) - Y) ** 2 - (both(**inputs) - Y) ** 2)

    options = {"features": {"first": ("a", np.s_[0])}}
    mean = rl.permutation_importance(both, inputs, Y, replace="mean", **options)
    np.testing.assert_allclose(mean.values, [changed(X[:, 0, 0].mean())])
    rows = rl.permutation_importance(both, inputs, Y, replace={"a": X[::-1, 0].copy()}, **options)
    np.testing.assert_allclose(rows.values, [changed(X[::-1, 0, 0])])
    others = {"a": OTHERS[:, 0], "ids": np.zeros(M, dtype=np.int64)}
    lent_by = rl.permutation_importance(both, inputs, Y, replace=rl.Donors(others), draws=M, **options)
    np.testing.assert_allclose(lent_by.values, [np.mean([changed(value) for value in OTHERS[:, 0, 0]])])
    with pytest.raises(TypeError, match="makes fractions"):
        rl.permutation_importance(both, inputs, Y, replace="mean")


def test_hidden_units_at_their_mean():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    layer = rl.models.torch(net, layer=net[2])
    with torch.no_grad():
        hidden, base = net[:3](rows), net(rows)[:, 0]
        background = net[:3](torch.tensor(OTHERS, dtype=torch.float32))
    mean = rl.permutation_importance(layer, rows, labels, replace="mean")
    lent_by = rl.permutation_importance(layer, rows, labels, replace=rl.Donors(torch.tensor(OTHERS).float()), draws=M)
    for unit in range(4):

        def change(value, unit=unit):
            moved = hidden.clone()
            moved[:, unit] = value
            with torch.no_grad():
                return float(torch.mean((net[3](moved)[:, 0] - labels) ** 2 - (base - labels) ** 2))

        np.testing.assert_allclose(mean.values[unit], change(hidden[:, unit].mean()), rtol=1e-3, atol=1e-6)
        literal = np.mean([change(value) for value in background[:, unit]])
        np.testing.assert_allclose(lent_by.values[unit], literal, rtol=1e-3, atol=1e-6)


def test_tables():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"age": X[:, 0, 0], "city": ["a", "b"] * 12})
    others = pd.DataFrame({"age": OTHERS[:, 0, 0], "city": ["c"] * M})

    def plain(frame):
        return frame["age"].to_numpy() * np.where(frame["city"].to_numpy() == "a", 1.0, 2.0)

    slope = np.where(table["city"] == "a", 1.0, 2.0)
    base = (plain(table) - Y) ** 2
    found = rl.permutation_importance(plain, table, Y, features=["age"], replace=rl.Donors(others), draws=M)
    literal = np.mean([np.mean((slope * age - Y) ** 2 - base) for age in others["age"]])
    np.testing.assert_allclose(found.values, [literal])
    with pytest.raises(TypeError, match="city"):
        rl.permutation_importance(plain, table, Y, replace=rl.Donors(others))
    with pytest.raises(ValueError, match="columns"):
        rl.permutation_importance(plain, table, Y, features=["age"], replace=rl.Donors(others[["city", "age"]]))


def test_what_is_constant_here_may_vary_elsewhere():
    rows = X.copy()
    rows[:, 0, 0] = 1.0
    result = rl.permutation_importance(model, rows, Y, features=MASKS, replace=rl.Donors(OTHERS), rng=0)
    assert result.values[0] != 0.0
    assert np.isfinite(result.interval()).all()


def test_draws_until_a_precision():
    found = rl.permutation_importance(
        model, X, Y, features=MASKS, replace=rl.Donors(OTHERS), draws=rl.Until(budget=12 * N * 2), rng=0
    )
    same = rl.permutation_importance(
        model, X, Y, features=MASKS, replace=rl.Donors(OTHERS), draws=found.draws_per_row, rng=0
    )
    np.testing.assert_allclose(found.values, same.values)
    np.testing.assert_allclose(found.std_error, same.std_error)


def test_metrics_and_jax_checkpoints_borrow_too():
    found = rl.permutation_importance(model, X, Y > 0, features=MASKS, loss="auc", replace=rl.Donors(OTHERS), rng=0)
    assert np.isfinite(found.interval()).all()


@pytest.mark.parametrize(
    ("replace", "options", "error", "words"),
    [
        ("median", {}, ValueError, "'mean', 'zero', 'noise'"),
        (np.ones(3), {}, ValueError, "shape"),
        (np.ones((5, 2, 3)), {}, ValueError, "rl.Donors"),
        (lambda Z: Z[:3], {}, ValueError, "shape"),
        ("mean", {"draws": 4}, ValueError, "written once"),
        (rl.Donors(OTHERS), {"draws": rl.Draws(4)}, TypeError, "number of draws"),
        (rl.Donors(OTHERS[:, :, :2]), {}, ValueError, "shape"),
        (rl.Donors(within=LABELS[:-1]), {}, ValueError, "within"),
        (rl.Donors(within=np.where(LABELS > 1, np.nan, 1.0)), {}, ValueError, "NaN"),
        (rl.Donors(OTHERS, within=LABELS, labels=np.zeros(M)), {}, ValueError, "no row"),
        (object(), {}, (TypeError, ValueError), "replace"),
    ],
)
def test_what_cannot_replace(replace, options, error, words):
    with pytest.raises(error, match=words) as caught:
        rl.permutation_importance(model, X, Y, features=MASKS, replace=replace, **options)
    assert len(str(caught.value)) <= 300


def test_donors_need_rows_or_labels():
    for options in ({}, {"X": OTHERS, "within": LABELS}, {"within": LABELS, "labels": LABELS}):
        with pytest.raises(ValueError, match="Donors"):
            rl.Donors(**options)
    with pytest.raises(ValueError, match="number of draws"):
        rl.local_importance(model, X, Y, replace=rl.Donors(within=LABELS))
    with pytest.warns(UserWarning, match="only ones of their label"):
        rl.permutation_importance(model, X, Y, replace=rl.Donors(within=np.where(np.arange(N) == 3, 9, 0)), rng=0)
    whole = np.arange(2 * N).reshape(N, 2) % 7
    zero = rl.permutation_importance(lambda Z: Z[:, 0] * 1.0, whole, Y, replace="zero")
    np.testing.assert_allclose(zero.values[0], np.mean(Y**2 - (whole[:, 0] - Y) ** 2))
    with pytest.raises(TypeError, match="holds int64"):
        rl.permutation_importance(lambda Z: Z[:, 0] * 1.0, whole, Y, replace=0.5)


# ---------------------------------------------------------------------------------------------------------------------
# Coverage: f = X b, y = X t + noise, two columns

SLOPES, TRUTH, CENTRES, SHARES = np.array([1.0, 0.7]), np.array([0.8, 0.7]), np.array([-1.0, 0.0, 2.0]), [0.5, 0.3, 0.2]
GAP = TRUTH - SLOPES


def _rows(rng, n):
    label = rng.choice(3, size=n, p=SHARES)
    Z = CENTRES[label][:, None] + rng.normal(size=(n, 2))
    return label, Z, Z @ TRUTH + 0.5 * rng.normal(size=n)


def _lent(rng):
    """Donors N(1, 2^2), rows N(0, 1): E (x_k - x_i)^2 = 6, E (y - f)(x_k - x_i) = -(t - b)."""
    Z = rng.normal(size=(100, 2))
    y = Z @ TRUTH + 0.5 * rng.normal(size=100)
    return Z, y, rl.Donors(1.0 + 2.0 * rng.normal(size=(60, 2)))


def _few_lenders(rng):
    Z = rng.normal(size=(200, 2))
    y = Z @ TRUTH + 0.5 * rng.normal(size=200)
    return Z, y, rl.Donors(1.0 + 2.0 * rng.normal(size=(30, 2)))


def _within(rng):
    label, Z, y = _rows(rng, 150)
    return Z, y, rl.Donors(within=label)


def _lent_within(rng):
    label, Z, y = _rows(rng, 120)
    theirs = rng.choice(3, size=90, p=[0.4, 0.3, 0.3])
    others = CENTRES[theirs][:, None] + 1.0 + 2.0 * rng.normal(size=(90, 2))
    return Z, y, rl.Donors(others, within=label, labels=theirs)


CASES = {
    "lent": (_lent, 8, 6 * SLOPES**2 + 2 * SLOPES * GAP),
    "lent once": (_lent, 1, 6 * SLOPES**2 + 2 * SLOPES * GAP),
    "few lenders": (_few_lenders, 16, 6 * SLOPES**2 + 2 * SLOPES * GAP),
    "within": (_within, 16, 2 * SLOPES**2 + 2 * SLOPES * GAP),
    "within, few draws": (_within, 3, 2 * SLOPES**2 + 2 * SLOPES * GAP),
    "lent within": (_lent_within, 8, 6 * SLOPES**2 - 2 * SLOPES * (GAP.sum() * (SHARES @ CENTRES) - GAP)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_coverage(case):
    make, draws, target = CASES[case]
    runs, inside, errors, values = 400, np.zeros(2), [], []
    for seed in range(runs):
        Z, y, replace = make(np.random.default_rng(1000 + seed))
        result = rl.permutation_importance(lambda Z: Z @ SLOPES, Z, y, replace=replace, draws=draws, rng=seed)
        low, high = result.interval().T
        inside += (low <= target) & (target <= high)
        errors.append(result.std_error)
        values.append(result.values)
    assert np.all(inside / runs > 0.925), inside / runs
    wide = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0)
    assert np.all((wide > 0.9) & (wide < 1.15)), wide


def test_one_row_alone():
    both = rl.local_importance(model, X[:2], Y[:2], features=MASKS, replace=rl.Donors(OTHERS))
    one = rl.local_importance(model, X[:1], Y[:1], features=MASKS, replace=rl.Donors(OTHERS))
    np.testing.assert_allclose(one.values, both.values[:1])
    with pytest.raises(ValueError, match="at least 2"):
        rl.permutation_importance(model, X[:1], Y[:1], features=MASKS, replace="zero")


def test_clusters_with_what_replaces():
    clusters = np.arange(N) // 4
    found = rl.permutation_importance(model, X, Y, features=MASKS, replace="zero", clusters=clusters, keep="rows")
    sums = np.array([[np.mean(values[clusters == c]) for c in range(6)] for values in found.row_values])
    error = np.std(sums, axis=1, ddof=1) / np.sqrt(6)  # times that of leaving out one of few clusters
    np.testing.assert_allclose(found.std_error, error * 5 / 4, rtol=0.05)
    with pytest.raises(ValueError, match="clusters="):
        rl.permutation_importance(model, X, Y, features=MASKS, replace=rl.Donors(OTHERS), clusters=clusters)
