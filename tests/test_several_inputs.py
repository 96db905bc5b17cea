"""Models of several inputs: every feature against a literal loop over pairs of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

import reliance as rl
from reliance.data import several_inputs

N = 7
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(N, 3, 4))
TOKENS = RNG.integers(0, 5, size=(N, 6))
AGE = RNG.normal(size=N)
Y = RNG.normal(size=N)
CORNER = np.zeros((3, 4), dtype=bool)
CORNER[:2, 1:3] = True
FEATURES = {
    "picture": "images",
    "line": ("images", slice(1, 2)),
    "corner": ("images", CORNER),
    "words": ("tokens", slice(0, 3)),
    "age": "age",
    "words and age": [("tokens", slice(2, 6)), "age"],
}
MASKS: dict[str, dict[str, np.ndarray]] = {
    "picture": {"images": np.ones((3, 4), dtype=bool)},
    "line": {"images": np.arange(3)[:, None].repeat(4, axis=1) == 1},
    "corner": {"images": CORNER},
    "words": {"tokens": np.arange(6) < 3},
    "age": {"age": np.ones((), dtype=bool)},
    "words and age": {"tokens": np.arange(6) >= 2, "age": np.ones((), dtype=bool)},
}
WEIGHTS = RNG.normal(size=(3, 4))


def literal(images: np.ndarray, tokens: np.ndarray, age: float) -> float:
    return float(np.sum(images * WEIGHTS) * age + np.sum(tokens * np.arange(6)) / 10)


def expected(feature: str, images: np.ndarray) -> float:
    rows = {"images": images, "tokens": TOKENS, "age": AGE.astype(images.dtype).astype(np.float64)}
    changes = []
    for i in range(N):
        own = {name: part[i] for name, part in rows.items()}
        base = (Y[i] - literal(**own)) ** 2
        for k in range(N):
            if k != i:
                given = {
                    name: np.where(MASKS[feature][name], part[k], part[i]) if name in MASKS[feature] else part[i]
                    for name, part in rows.items()
                }
                changes.append((Y[i] - literal(**given)) ** 2 - base)
    return float(np.mean(changes))


def model_of(backend: Any) -> Any:
    weights, places = backend.asarray(WEIGHTS), backend.asarray(np.arange(6.0))

    def model(images: Any, tokens: Any, age: Any) -> Any:
        xp = array_namespace(images)
        words = xp.sum(xp.astype(tokens, places.dtype) * places, axis=1)
        return xp.sum(images * weights, axis=(1, 2)) * age + words / 10

    return model


@pytest.mark.once_per_device
@pytest.mark.parametrize("block", [None, 5])
def test_every_feature_equals_a_literal_loop(backend: Any, block: int | None) -> None:
    X = {"images": backend.asarray(IMAGES), "tokens": backend.asarray(TOKENS), "age": backend.asarray(AGE)}
    result = rl.model_reliance(
        model_of(backend), X, backend.asarray(Y), features=FEATURES, compare="difference", run=rl.Run(block=block)
    )
    assert result.names == tuple(FEATURES)
    assert set(result.routes) == {"plain"}
    tolerance = 1e-10 if backend.dtype == "float64" else 2e-4
    literal_values = [expected(name, backend.rounded(IMAGES)) for name in FEATURES]
    np.testing.assert_allclose(result.values, literal_values, rtol=tolerance, atol=tolerance)


@pytest.mark.once_per_device
def test_a_tuple_is_passed_in_its_order(backend: Any) -> None:
    model = model_of(backend)
    named = {"images": backend.asarray(IMAGES), "tokens": backend.asarray(TOKENS), "age": backend.asarray(AGE)}
    by_place = rl.permutation_importance(model, tuple(named.values()), backend.asarray(Y), draws=3, rng=0)
    by_name = rl.permutation_importance(model, named, backend.asarray(Y), draws=3, rng=0)
    assert by_place.names == ("input 0", "input 1", "input 2")
    assert by_name.names == ("images", "tokens", "age")
    np.testing.assert_array_equal(by_place.values, by_name.values)


def test_a_torch_module_with_embeddings_takes_host_arrays() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.drop, self.out = torch.nn.Embedding(5, 2), torch.nn.Dropout(0.5), torch.nn.Linear(14, 1)

        def forward(self, tokens: Any, images: Any) -> Any:
            words = self.embed(tokens).flatten(1)
            return self.out(torch.cat([self.drop(words), images[:, 0, :2]], dim=1))[:, 0]

    net = Net()
    X = {"tokens": TOKENS, "images": IMAGES}
    result = rl.permutation_importance(net, X, Y, draws=3, rng=0)
    assert net.training  # its mode is given back
    tensors = {"tokens": torch.from_numpy(TOKENS), "images": torch.from_numpy(IMAGES).float()}
    again = rl.permutation_importance(net, tensors, torch.from_numpy(Y), draws=3, rng=0)
    np.testing.assert_allclose(result.values, again.values, rtol=1e-12)
    with torch.no_grad():
        net.eval()
        base = torch.mean((torch.from_numpy(Y) - net(**tensors)) ** 2)
    np.testing.assert_allclose(result.base_risk, float(base), rtol=1e-6)


def test_bad_input() -> None:
    def model(a: Any, b: Any) -> Any:
        return a[:, 0] + b

    a, b = IMAGES[:, 0], AGE
    with pytest.raises(ValueError, match=r"X\['b'\] has 3 rows but X\['a'\] has 7"):
        rl.permutation_importance(model, {"a": a, "b": b[:3]}, Y)
    with pytest.raises(ValueError, match=r"names the input 'c', but X has 'a', 'b'"):
        rl.permutation_importance(model, {"a": a, "b": b}, Y, features=["c"])
    with pytest.raises(ValueError, match=r"booleans of the shape \(4,\) of a row"):
        rl.permutation_importance(model, {"a": a, "b": b}, Y, features={"part": ("a", np.ones(3, dtype=bool))})
    with pytest.raises(ValueError, match="chooses nothing"):
        rl.permutation_importance(model, {"a": a, "b": b}, Y, features={"part": ("a", slice(4, 9))})
    with pytest.raises(TypeError, match="for several inputs pass a list of inputs"):
        rl.permutation_importance(model, {"a": a, "b": b}, Y, features="a")
    with pytest.raises(ValueError, match="names= is for columns of one array"):
        rl.permutation_importance(model, {"a": a, "b": b}, Y, names=["a", "b"])
    with pytest.raises(TypeError, match="samplers compute with numbers"):
        rl.relative_importance(model, {"a": a, "b": b}, Y, given="rest")
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"X\['b'\] is a torch .* but X\['a'\] is a numpy"):
        rl.permutation_importance(model, {"a": a, "b": torch.from_numpy(b)}, Y)


@pytest.mark.once_per_device
@pytest.mark.parametrize(
    "method",
    [
        lambda model, X, y, **more: rl.permutation_importance(model, X, y, rng=0, draws=3, **more).values,
        lambda model, X, y, **more: rl.local_importance(model, X, y, rows=[4, 1], **more).values,
        lambda model, X, y, **more: rl.sobol_total(model, X, rng=0, pairs="all", **more).interval(),
    ],
    ids=["permutation", "some rows", "sobol"],
)
def test_one_array_in_pieces_is_that_array(backend: Any, method: Any) -> None:
    """The same donors, the same numbers: an input is exchanged as an array is."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(20, 2, 5)), rng.normal(size=20)
    weights = backend.asarray(rng.normal(size=(2, 5)))

    def model(rows: Any) -> Any:
        xp = array_namespace(rows)
        return xp.sum(rows * weights, axis=(1, 2)) * rows[:, 0, 3]

    array, labels = backend.asarray(X), backend.asarray(y)
    windows = rl.features.windows(array, 3, axis=1)
    whole = method(model, array, labels, features=windows)
    several = {"x": array, "unused": backend.asarray(np.arange(20))}
    parts = {name: ("x", part) for name, part in windows.items()}
    divided = method(lambda x, unused: model(x), several, labels, features=parts)
    np.testing.assert_allclose(divided, whole, rtol=1e-6)


def test_pieces_are_what_features_tell_apart() -> None:
    """Sliding windows over one input, a whole other input: each feature is exactly its entries, whatever overlaps."""
    rng = np.random.default_rng(4)
    images, words = rng.normal(size=(4, 3, 8, 8)), rng.integers(0, 9, size=(4, 5))
    features = {
        **rl.features.patches({"i": images}, 3, stride=1, of="i"),
        "all words": "w",
        "both": [("i", np.s_[1]), ("w", np.s_[2:4])],
    }
    inputs = several_inputs.read({"i": images, "w": words}, features, None)
    for feature in inputs.features:
        wanted = np.zeros((3, 8, 8), dtype=bool), np.zeros(5, dtype=bool)
        members = features[feature.name]
        for name, where in members if isinstance(members, list) else [members if members != "w" else ("w", np.s_[:])]:
            wanted["iw".index(name)][where] = True
        for found, mask in zip(inputs.columns(feature), wanted, strict=True):
            assert list(found) == np.flatnonzero(mask).tolist()
    covered = [at for name, at in inputs.pieces if name == "i"]
    assert sorted(np.concatenate(covered).tolist()) == list(range(192))  # each entry in one piece


def test_a_model_that_changes_one_of_its_inputs_is_found() -> None:
    def model(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        b[:] = 0.0
        return a[:, 0]

    with pytest.raises(ValueError, match="chang"):
        rl.permutation_importance(model, {"a": IMAGES[:, 0], "b": AGE.copy()}, Y, draws=3, rng=0)
