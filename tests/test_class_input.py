"""Reliance over classes: what is refused and why, bounds for new rows, figures."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl

METHODS = {"MCR": rl.model_class_reliance, "CMCR": rl.conditional_model_class_reliance}


def made(n=20):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n)


X0, Y0 = made()
MODELS = {"first": rl.models.Linear(np.array([1.0, 0.0, 0.0])), "both": rl.models.Linear(np.array([1.0, 0.5, 0.0]))}
LISTED = rl.FiniteClass(MODELS)


def negative(y, prediction):
    return -((y - prediction) ** 2)


BAD = {
    "epsilon negative": ({"epsilon": -1e-9}, ValueError, "epsilon=-1e-09: pass a number of at least 0"),
    "epsilon infinite": ({"epsilon": np.inf}, ValueError, "epsilon=inf"),
    "epsilon text": ({"epsilon": "5%"}, ValueError, "epsilon='5%'"),
    "epsilon true": ({"epsilon": True}, ValueError, "epsilon=True"),
    "relative": ({"relative": 0.1}, TypeError, "relative=0.1: pass True"),
    "empty set": ({"reference": 0.0}, ValueError, "the Rashomon set is empty"),
    "reference nan": ({"reference": np.nan}, ValueError, "reference=nan is no risk"),
    "reference infinite": ({"reference": np.inf}, ValueError, "reference=inf is no risk"),
    "y constant": ({"y": np.full(20, 3.0)}, ValueError, "y is constant"),
    "y nan": ({"y": np.where(np.arange(20) == 3, np.nan, Y0)}, ValueError, "y holds NaN"),
    "y None": ({"y": None}, ValueError, "y is None"),
    "y short": ({"y": Y0[:5]}, ValueError, "X has 20 rows"),
    "rows of more axes": ({"X": X0[:, :, None]}, ValueError, r"needs X \(n, P\)"),
    "compare": ({"compare": "log"}, ValueError, "compare='log'"),
    "feature": ({"features": [7]}, (ValueError, IndexError), "7"),
}
# What only models with coefficients refuse, and what only lists do.
BAD_LINEAR = {
    "y text": ({"y": np.where(Y0 > 0, "a", "b")}, TypeError, "LinearClass needs numbers: encode the labels"),
    "y two columns": ({"y": np.stack([Y0, Y0], axis=1)}, ValueError, "LinearClass has one output"),
    "reference a function": ({"reference": lambda X: X[:, 0]}, TypeError, "not known to be linear"),
}
BAD_LIST = {
    "reference outside": ({"reference": rl.models.Linear(np.ones(3))}, ValueError, "it is outside the class"),
    "reference unknown": ({"reference": "third"}, ValueError, "reference='third' is not in the list"),
    "gains": (
        {"model_class": rl.FiniteClass(MODELS, loss=negative)},
        ValueError,
        "a share of a negative risk is no allowance; pass relative=False",
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("model_class", "name"),
    [(c, name) for c, cases in (("linear", BAD_LINEAR), ("list", BAD_LIST)) for name in (*BAD, *cases)],
)
def test_bad_input(method, model_class, name):
    given, error, match = {**BAD, **BAD_LINEAR, **BAD_LIST}[name]
    own = {"linear": rl.LinearClass(), "list": LISTED}[model_class]
    with pytest.raises(error, match=match):
        METHODS[method](**{"model_class": own, "X": X0, "y": Y0, "epsilon": 0.1, **given})


def test_gains_with_a_risk_added():
    found = rl.model_class_reliance(
        rl.FiniteClass(MODELS, loss=negative), X0, Y0, epsilon=9.0, relative=False, compare="difference"
    )
    assert found.members.inside.all()
    assert found.reference_risk == found.members.risks.min()


def test_tables():
    """A list's models get the table that they know; columns of text are for them alone."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"size": X0[:, 0], "kind": np.where(X0[:, 1] > 0, "a", "b")})

    def by_name(frame):
        return frame["size"].to_numpy() + 0.5 * (frame["kind"] == "a").to_numpy()

    def plain(frame):
        return frame["size"].to_numpy()

    found = rl.model_class_reliance(rl.FiniteClass({"named": by_name, "plain": plain}), table, Y0, epsilon=99.0)
    assert found.names == ("size", "kind")
    single = rl.model_reliance(by_name, table, Y0)
    np.testing.assert_allclose(found.members.values[0], single.values, rtol=1e-12)
    assert found.members.values[1, 1] == 1.0
    with pytest.raises(TypeError, match="LinearClass needs numbers, but 'kind' of X holds text"):
        rl.model_class_reliance(rl.LinearClass(), table, Y0, epsilon=0.1)


# ---------------------------------------------------------------------------------------------------------------------
# New rows

BAD_CONFIDENCE = {
    "level": ({"confidence": 95, "loss_bound": 9.0}, "confidence=95: pass a level between 0 and 1"),
    "no bound": ({"confidence": 0.95}, "needs loss_bound="),
    "bound negative": ({"confidence": 0.95, "loss_bound": -1.0}, "it is -1.0"),
    "bound alone": ({"loss_bound": 9.0}, "loss_bound=9.0 is used with confidence= only"),
    "no reference": ({"confidence": 0.95, "loss_bound": 9.0, "reference": None}, "not chosen on these rows"),
    "a risk": ({"confidence": 0.95, "loss_bound": 9.0, "reference": 1.0}, "not chosen on these rows"),
    "exceeded": ({"confidence": 0.95, "loss_bound": 1e-6}, "but the reference's mean loss is"),
}


@pytest.mark.parametrize("name", BAD_CONFIDENCE)
def test_bad_confidence(name):
    given, match = BAD_CONFIDENCE[name]
    call = {"epsilon": 0.1, "reference": MODELS["both"], **given}
    with pytest.raises(ValueError, match=match):
        rl.model_class_reliance(rl.LinearClass(), X0, Y0, **call)


def test_outer_bounds_of_a_list():
    """The formula of the docstring, written out; and the warning."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 3))
    y = X[:, 0] + 0.5 * X[:, 1] + rng.uniform(-0.5, 0.5, size=4000)
    call = {"epsilon": 0.1, "reference": "both", "compare": "difference"}
    with pytest.warns(UserWarning, match="usually very wide"):
        found = rl.model_class_reliance(LISTED, X, y, confidence=0.9, loss_bound=4.0, **call)
    q1, q2 = (4.0 * np.sqrt(np.log(6 / 0.1) / (2 * m)) for m in (4000, 2000))
    inside = found.members.risks <= found.bound + 2.1 * q1
    assert inside.tolist() == [True, True]
    assert found.members.inside.tolist() == [False, True]
    values = np.stack([rl.model_reliance(m, X, y, compare="difference").values for m in MODELS.values()])
    np.testing.assert_allclose(found.outer[:, 0], values.min(axis=0) - q1 - q2, rtol=1e-9)
    np.testing.assert_allclose(found.outer[:, 1], values.max(axis=0) + q1 + q2, rtol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Results


def test_table_counts_the_models():
    found = rl.model_class_reliance(LISTED, X0, Y0, epsilon=0.0)
    assert "1 of 2 models" in repr(found)


def test_plot_of_ranges():
    plt = pytest.importorskip("matplotlib.pyplot")
    found = rl.model_class_reliance(LISTED, X0, Y0, epsilon=99.0, names=["a", "b", "c"])
    _, ax = plt.subplots()
    found.plot(ax=ax, most=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    for bar, j in zip(ax.collections[0].get_segments(), (0, 1), strict=True):
        assert bar[:, 0].tolist() == pytest.approx([found.lower[j], found.upper[j]])
    assert "2 largest of 3" in ax.get_title()
    with pytest.raises(TypeError, match=r"most=1\.5 is not an integer"):
        found.plot(most=1.5)
    with pytest.raises(ValueError, match="most=0"):
        found.plot(most=0)
    plt.close("all")
