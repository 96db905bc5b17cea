"""What is accepted as data, features and settings, and what becomes of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reliance as rl
from methods import METHODS
from oracles import CASES
from reliance._core.arrays import namespace
from reliance.data.features import Feature, resolve_features
from reliance.engine import problems

CASE = CASES["squared_error"]


def first(x):
    return x[..., 0]


def prepared(X, y=None, **options):
    return problems.prepare(first, X, y if y is not None else X[:, 0], **options)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


@pytest.mark.parametrize(
    "convert", [list, lambda a: a.tolist(), lambda a: tuple(a.tolist())], ids=["list-of-rows", "nested", "tuple"]
)
def test_lists_are_numpy(convert):
    X, y = CASE.data()
    result = METHODS["all"](CASE.formula, convert(X), convert(y), weights=[1.0] * len(X))
    np.testing.assert_allclose(result.values, METHODS["all"](CASE.formula, X, y).values, rtol=1e-12)


STRIDES = {
    "fortran": np.asfortranarray,
    "reversed": lambda X: np.ascontiguousarray(X[::-1])[::-1],
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "broadcast-column": lambda X: np.concatenate([X, X], axis=1)[:, :4],
    "big-endian": lambda X: X.astype(">f8"),
    "subclass": lambda X: X.view(type("Sub", (np.ndarray,), {})),
}


@pytest.mark.parametrize("layout", STRIDES)
def test_any_memory_layout(layout):
    X, y = CASE.data()
    plain = METHODS["all"](CASE.formula, X, y, keep="rows")
    result = METHODS["all"](CASE.formula, STRIDES[layout](X), y, keep="rows")
    np.testing.assert_allclose(result.row_values, plain.row_values, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, np.int64, np.uint64, np.bool_])
@pytest.mark.parametrize("labels", [np.float64, np.int64, np.uint8, np.bool_])
def test_dtypes_of_data_and_labels(dtype, labels):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(9, 3)).astype(dtype), rng.integers(0, 2, size=9).astype(labels)
    result = METHODS["all"](lambda x: 1 * x[:, 0], X, y, compare="difference")
    exact = METHODS["all"](lambda x: 1 * x[:, 0], X.astype(float), y.astype(float), compare="difference")
    np.testing.assert_allclose(result.values, exact.values, rtol=1e-6)


@pytest.mark.once_per_device
def test_integer_data_on_every_backend(backend):
    X, y = np.random.default_rng(1).integers(0, 9, size=(10, 3)), np.linspace(0.0, 5.0, 10)

    def model(x):
        return namespace(x).astype(x[:, 0], backend.asarray(y).dtype) * 0.5

    result = METHODS["all"](model, backend.asarray(X), backend.asarray(y), keep="rows")
    plain = METHODS["all"](lambda x: 0.5 * x[:, 0], X, backend.rounded(y), keep="rows")
    backend.assert_close(result.row_values, plain.row_values, scale=10.0)


@pytest.mark.once_per_device
@pytest.mark.parametrize("labels", ["int32", "uint8", "bool", "float32"])
@pytest.mark.parametrize("loss", ["log_loss", "auc", "zero_one"])
def test_labels_of_any_kind_on_every_backend(backend, loss, labels):
    case = CASES["zero_one" if loss == "zero_one" else "log_loss"]
    X, y = case.data(n=10, seed=3)
    plain = METHODS["permutation"](case.formula, backend.rounded(X), y, loss=loss)
    result = METHODS["permutation"](case.formula, backend.asarray(X), backend.upload(y.astype(labels)), loss=loss)
    backend.assert_close(result.values, plain.values)


def test_a_problem_is_frozen_and_can_be_cut():
    X, y = CASE.data(n=9)
    problem = prepared(X, y, weights=np.arange(9.0), names=list("abcd"), keep=["rows"])
    assert (problem.n, [f.name for f in problem.features]) == (9, list("abcd"))
    assert problem.keep == {"rows"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.key = 3
    head = problem.head(4)
    assert head.n == 4
    assert [len(a) for a in (head.targets[0], head.weights, head.host_weights)] == [4, 4, 4]


def test_problems_hold_no_copy_of_the_data():
    X, y = CASE.data()
    problem = prepared(X, y)
    assert np.shares_memory(problem.store.flat, X)
    assert problem.targets[0] is y


# ---------------------------------------------------------------------------------------------------------------------
# Features


def columns(features, names=None, shape=(4,)):
    return {f.name: f.columns for f in resolve_features(features, names, shape)}


ACCEPTED = {
    "none": (None, {"x0": (0,), "x1": (1,), "x2": (2,), "x3": (3,)}),
    "index": ([1], {"x1": (1,)}),
    "numpy-index": ([np.int64(1)], {"x1": (1,)}),
    "array": (np.array([2, 0]), {"x2": (2,), "x0": (0,)}),
    "range": (range(2), {"x0": (0,), "x1": (1,)}),
    "tuple": ((0, 1), {"x0": (0,), "x1": (1,)}),
    "generator": ((j for j in (3,)), {"x3": (3,)}),
    "group": ([(3, 1)], {"x1+x3": (1, 3)}),
    "list-group": ([[0, "x2"]], {"x0+x2": (0, 2)}),
    "set-group": ([{0, 2}], {"x0+x2": (0, 2)}),
    "array-group": ([np.array([0, 2])], {"x0+x2": (0, 2)}),
    "dict": ({"a": (0, 3), "b": [1]}, {"a": (0, 3), "b": (1,)}),
    "dict-of-one": ({"a": 2, "b": "x0"}, {"a": (2,), "b": (0,)}),
    "dict-of-arrays": ({"a": np.array([1, 0])}, {"a": (0, 1)}),
    "dict-of-ranges": ({"a": range(2)}, {"a": (0, 1)}),
    "integer-names": ({7: [0]}, {"7": (0,)}),
    "negative": ([-1], {"x3": (3,)}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_features(case):
    given, expected = ACCEPTED[case]
    found = columns(given)
    assert found == expected
    assert list(found) == list(expected)


def test_features_by_their_names():
    assert columns(["age", ("sex", 0)], names=["id", "sex", "age", "x"]) == {"age": (2,), "id+sex": (0, 1)}


def test_features_of_tensors():
    torch = pytest.importorskip("torch")
    assert columns(torch.tensor([1, 3])) == {"x1": (1,), "x3": (3,)}
    mask = torch.tensor([[0, 1], [1, 0]])
    assert columns(mask, shape=(2, 2)) == {"0": (0, 3), "1": (1, 2)}


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_are_the_columns(chosen):
    feature = Feature("f", tuple(sorted(chosen)))
    covered = [j for run in feature.runs for j in range(run.start, run.stop)]
    assert covered == sorted(chosen)
    gaps = [b.start - a.stop for a, b in zip(feature.runs, feature.runs[1:], strict=False)]
    assert all(gap > 0 for gap in gaps)


@given(st.lists(st.integers(-1, 4), min_size=6, max_size=6))
def test_masks_partition_the_columns(numbers):
    mask = np.array(numbers).reshape(2, 3)
    if max(numbers) < 0:
        with pytest.raises(ValueError, match="features is a mask of negative numbers"):
            columns(mask, shape=(2, 3))
        return
    found = columns(mask, shape=(2, 3))
    assert found == {str(k): tuple(np.flatnonzero(mask.reshape(-1) == k)) for k in sorted(set(numbers)) if k >= 0}


# ---------------------------------------------------------------------------------------------------------------------
# Settings


@pytest.mark.parametrize(
    "text, expected",
    [
        (1000, 1000),
        (np.int64(7), 7),
        ("12", 12),
        ("3 B", 3),
        ("2kB", 2000),
        ("512MB", 512 * 10**6),
        ("1.5 GB", 1_500_000_000),
        (" 2GiB ", 2**31),
        ("4kib", 4096),
        ("1tb", 10**12),
    ],
)
def test_memory(text, expected):
    assert rl.Run(memory=text).bytes == expected


@pytest.mark.parametrize("block", [None, 1, np.int64(4), (2, 3), "tune"])
def test_blocks(block):
    assert prepared(*CASE.data(), run=rl.Run(block=block)).block == block


@pytest.mark.parametrize("block", [np.int64(6), (np.int64(3), np.int32(2))], ids=["int", "tuple"])
def test_blocks_may_be_numpy_integers(block):
    X, y = CASE.data()
    result = METHODS["all"](CASE.formula, X, y, run=rl.Run(block=block))
    assert np.prod(result.block) <= 6
    np.testing.assert_allclose(result.values, METHODS["all"](CASE.formula, X, y).values, rtol=1e-12)


@pytest.mark.once_per_device
def test_a_tuned_block_gives_the_same_result(backend):
    X, y = CASE.data(n=12)
    arrays = backend.asarray(X), backend.asarray(y)
    tuned = METHODS["all"](CASE.formula, *arrays, run=rl.Run(block="tune", memory="60KB"))
    backend.assert_close(tuned.values, METHODS["all"](CASE.formula, *arrays).values)


@pytest.mark.parametrize("keep, kept", [((), False), ("rows", True), (["rows"], True), (("rows", "rows"), True)])
def test_keep(keep, kept):
    X, y = CASE.data()
    assert (METHODS["all"](CASE.formula, X, y, keep=keep).row_values is not None) is kept
