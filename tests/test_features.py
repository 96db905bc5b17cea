"""Features of tensors: slices, masks, overlapping groups and the helpers of `rl.features`, against literal loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

import reliance as rl

N, SHAPE = 6, (2, 3, 4)
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(N, *SHAPE))
Y = RNG.normal(size=N)
WEIGHTS = RNG.normal(size=SHAPE)
MASK = RNG.random(SHAPE) > 0.5


def chosen(index: Any) -> np.ndarray:
    mask = np.zeros(SHAPE, dtype=bool)
    mask[index] = True
    return mask


PARTS: dict[str, tuple[Any, np.ndarray]] = {
    "red": (np.s_[0], chosen(0)),
    "last column": (np.s_[..., -1:], chosen(np.s_[:, :, 3])),
    "patch": (np.s_[:, 1:3, 2:4], chosen(np.s_[:, 1:3, 2:4])),
    "next patch": (np.s_[:, 0:2, 1:3], chosen(np.s_[:, 0:2, 1:3])),  # overlaps the one before
    "every other": (np.s_[:, :, ::-2], chosen(np.s_[:, :, [1, 3]])),
    "mask": (MASK, MASK),
    "pixels": ([0, 5], np.isin(np.arange(24).reshape(SHAPE), [0, 5])),
}


def literal(mask: np.ndarray, images: np.ndarray, model: Any) -> float:
    """Mean change over all pairs, by a loop."""
    changes = []
    for i in range(N):
        for k in range(N):
            if i != k:
                mixed = np.where(mask, images[k], images[i])
                changes.append((Y[i] - model(mixed)) ** 2 - (Y[i] - model(images[i])) ** 2)
    return float(np.mean(changes))


def product_of_sums(image: np.ndarray) -> float:
    return float((image * WEIGHTS).sum() * image[1].sum())


def model_of(backend: Any) -> Any:
    weights = backend.asarray(WEIGHTS)

    def model(images: Any) -> Any:
        xp = array_namespace(images)
        return xp.sum(images * weights, axis=(1, 2, 3)) * xp.sum(images[:, 1, :, :], axis=(1, 2))

    return model


@pytest.mark.once_per_device
def test_slices_and_masks_that_overlap_equal_a_literal_loop(backend: Any) -> None:
    features = {name: backend.asarray(part) if name == "mask" else part for name, (part, _) in PARTS.items()}
    result = rl.model_reliance(
        model_of(backend), backend.asarray(IMAGES), backend.asarray(Y), features=features, compare="difference"
    )
    wanted = [literal(mask, backend.rounded(IMAGES), product_of_sums) for _, mask in PARTS.values()]
    assert result.names == tuple(PARTS)
    tolerance = 1e-10 if backend.dtype == "float64" else 5e-4
    np.testing.assert_allclose(result.values, wanted, rtol=tolerance, atol=tolerance)


def named(features: Any) -> dict[str, np.ndarray]:
    """The masks that features stand for, by what comes back if a model tells which entries moved."""
    entries = np.arange(24.0).reshape(1, *SHAPE) + 100.0 * np.arange(2).reshape(2, 1, 1, 1)
    seen: list[np.ndarray] = []

    def model(images: np.ndarray) -> np.ndarray:
        seen.append(images.copy())
        return images.sum(axis=(1, 2, 3))

    found = {}
    for name, part in features.items():
        seen.clear()
        rl.model_reliance(model, entries, np.zeros(2), features={name: part}, compare="difference", route="plain")
        mixed = next(rows for rows in seen[::-1] if len(rows) == 4)[1]  # row 0 with the values of row 1
        found[name] = mixed != entries[0]
    return found


def test_helpers_name_every_channel_position_patch_and_window() -> None:
    assert {name: mask.tolist() for name, mask in named(rl.features.channels(IMAGES)).items()} == {
        f"channel {k}": chosen(k).tolist() for k in range(2)
    }
    pixels = named(rl.features.positions(IMAGES))
    assert len(pixels) == 12
    np.testing.assert_array_equal(pixels["position 2,1"], chosen(np.s_[:, 2, 1]))
    tiles = named(rl.features.patches(SHAPE, 2))
    assert sum(mask.sum() for mask in tiles.values()) == 24  # they tile the image, the last row alone
    np.testing.assert_array_equal(tiles["patch 2,2"], chosen(np.s_[:, 2:3, 2:4]))
    sliding = named(rl.features.patches(SHAPE, (2, 3), stride=1))
    assert list(sliding) == ["patch 0,0", "patch 0,1", "patch 1,0", "patch 1,1"]
    np.testing.assert_array_equal(sliding["patch 1,1"], chosen(np.s_[:, 1:3, 1:4]))
    series = named(rl.features.windows(IMAGES, 3, axis=-1))
    assert list(series) == ["0:3", "1:4"]
    np.testing.assert_array_equal(series["1:4"], chosen(np.s_[..., 1:4]))
    every = rl.features.positions((5,)) | rl.features.positions((5, 2), axes=0)
    assert list(every) == [f"position {k}" for k in range(5)]


@pytest.mark.once_per_device
def test_helpers_reach_into_several_inputs(backend: Any) -> None:
    X = {"images": backend.asarray(IMAGES), "age": backend.asarray(IMAGES[:, 0, 0, 0])}
    model = model_of(backend)
    result = rl.model_reliance(
        lambda images, age: model(images) + age,
        X,
        backend.asarray(Y),
        features=rl.features.patches(X, (3, 2), of="images"),
        compare="difference",
    )
    rows = backend.rounded(IMAGES)
    ages = {rows[i].tobytes(): rows[i, 0, 0, 0] for i in range(N)}
    changes = []
    for i in range(N):
        for k in range(N):
            if i != k:
                mixed, age = np.where(chosen(np.s_[:, :, 2:4]), rows[k], rows[i]), ages[rows[i].tobytes()]
                own = product_of_sums(rows[i]) + age
                changes.append((Y[i] - product_of_sums(mixed) - age) ** 2 - (Y[i] - own) ** 2)
    assert result.names == ("patch 0,0", "patch 0,2")
    tolerance = 1e-10 if backend.dtype == "float64" else 5e-4
    np.testing.assert_allclose(result.values[1], np.mean(changes), rtol=tolerance, atol=tolerance)


def test_integer_masks_leave_negative_entries_alone_and_masks_may_be_stacked() -> None:
    numbers = np.where(MASK, 3, -1)
    model = model_of(type("Host", (), {"asarray": staticmethod(np.asarray)}))
    by_number = rl.model_reliance(model, IMAGES, Y, features=numbers, compare="difference")
    stacked = rl.model_reliance(model, IMAGES, Y, features=np.stack([MASK, ~MASK]), compare="difference")
    assert by_number.names == ("3",)
    np.testing.assert_allclose(stacked.values[0], by_number.values[0], rtol=1e-12)
    np.testing.assert_allclose(stacked.values[1], literal(~MASK, IMAGES, product_of_sums), rtol=1e-10)


def test_groups_can_be_given_by_name() -> None:
    """What is given is kept: a feature within the group that is given has no importance left, others have theirs."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2, 3))
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=(300, 3))

    def model(rows: np.ndarray) -> np.ndarray:
        return rows.sum(axis=(1, 2))

    features = rl.features.channels(X, names=["left", "right"])
    result = rl.relative_importance(model, X, model(X), features=features, given=["left"], rng=0)
    free = rl.relative_importance(model, X, model(X), features=features, given=[], rng=0)
    assert result.values[0] == 0.0
    assert 0.0 < result.values[1] < 0.1 * free.values[1]  # once the left is known, the right is nearly known
    by_index = rl.relative_importance(model, X, model(X), features=features, given=[0, 1, 2], rng=0)
    np.testing.assert_array_equal(result.values, by_index.values)


def ask(**options: Any) -> Any:
    return rl.permutation_importance(lambda images: images[:, 0, 0, 0], IMAGES, Y, draws=3, rng=0, **options)


BAD = {
    "mask of another shape": (lambda: ask(features={"a": MASK[0]}), ["group a", "(3, 4)", "(2, 3, 4)"]),
    "mask of nothing": (lambda: ask(features={"a": np.zeros(SHAPE, dtype=bool)}), ["group a", "chooses nothing"]),
    "numbers of nothing": (lambda: ask(features=np.full(SHAPE, -1)), ["left alone", "0 or higher"]),
    "slice of nothing": (lambda: ask(features={"a": np.s_[:, 3:]}), ["group a", "chooses nothing"]),
    "index outside": (lambda: ask(features={"a": np.s_[2, :]}), ["group a", "does not fit", "(2, 3, 4)"]),
    "too many axes": (lambda: ask(features={"a": np.s_[:, :, :, :]}), ["does not fit"]),
    "mask without a name": (lambda: ask(features=[MASK]), ["{'name': mask}"]),
    "one mask": (lambda: ask(features=MASK), ["mask of dtype bool", "{'name': mask}"]),
    "channels of nothing": (lambda: rl.features.channels(IMAGES, axis=3), ["axis 3", "(2, 3, 4)"]),
    "names": (lambda: rl.features.channels(IMAGES, names=["a"]), ["names", "2 different names"]),
    "large patch": (lambda: rl.features.patches(IMAGES, 4), ["size=4", "3 entries"]),
    "no patch": (lambda: rl.features.patches(IMAGES, 0), ["size=0", "positive"]),
    "no such input": (lambda: rl.features.windows({"a": IMAGES}, 2, of="b"), ["of='b'", "'a'"]),
    "no array": (lambda: rl.features.windows("text", 2), ["X is a str", "shape of a row"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_features_are_answered_in_words(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert len(message) <= 300


def test_an_unknown_given_of_an_image_has_a_short_answer() -> None:
    images = np.random.default_rng(0).normal(size=(10, 3, 64, 64)).astype(np.float32)
    for given in (["sky"], {"none": [], "sky": ["sky"]}, rl.Given(["sky"])):
        with pytest.raises(ValueError, match="given names 'sky'") as caught:
            rl.relative_importance(
                lambda X: X[:, 0, 0, 0], images, images[:, 0, 0, 0], features={"red": np.s_[0]}, given=given, rng=0
            )
        assert len(str(caught.value)) <= 300
    with pytest.raises(ValueError, match="features names 'sky'") as caught:
        rl.permutation_importance(lambda X: X[:, 0, 0, 0], images, images[:, 0, 0, 0], features=["sky"], rng=0)
    assert len(str(caught.value)) <= 300


def test_pairs_that_share_columns_have_no_interaction() -> None:
    with pytest.raises(ValueError, match="'a' and 'b' share columns"):
        rl.interaction_importance(
            lambda X: X[:, 0], IMAGES.reshape(N, -1), Y, features={"a": [0, 1], "b": [1, 2]}, draws=3
        )
