"""Models of other libraries, each against a literal loop over its own predictions."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl

N = 12
RNG = np.random.default_rng(0)
X32 = RNG.normal(size=(N, 3)).astype(np.float32)
Y = (X32[:, 0] * X32[:, 1]).astype(np.float32)
WEIGHTS = np.array([1.0, -2.0, 0.5], dtype=np.float32)


def literal(predict: Callable[[np.ndarray], np.ndarray], X: np.ndarray = X32, y: np.ndarray = Y) -> np.ndarray:
    """Squared error over all pairs less that of the rows, pair by pair, with the library's own predictions."""
    base = np.mean((y - np.asarray(predict(X)).reshape(len(X))) ** 2)
    values = []
    for j in range(X.shape[1]):
        losses = []
        for k in range(len(X)):
            switched = X.copy()
            switched[:, j] = X[k, j]
            changed = (y - np.asarray(predict(switched)).reshape(len(X))) ** 2
            losses.append(np.delete(changed, k))
        values.append(np.mean(losses) - base)
    return np.asarray(values)


def assert_literal(model: Any, predict: Callable[[np.ndarray], np.ndarray], X: Any = X32, y: Any = Y) -> None:
    result = rl.model_reliance(model, X, y, compare="difference", route="plain")
    np.testing.assert_allclose(result.values, literal(predict), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_skorch() -> None:
    skorch, torch = pytest.importorskip("skorch"), pytest.importorskip("torch")
    torch.manual_seed(0)
    net = skorch.NeuralNetRegressor(
        torch.nn.Linear, module__in_features=3, module__out_features=1, max_epochs=1, verbose=0
    )
    net.fit(X32, Y[:, None])
    assert_literal(net, net.predict)


def test_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(iterations=5, depth=2, verbose=0, allow_writing_files=False).fit(X32, Y)
    assert_literal(model, model.predict)


def test_catboost_with_categories_of_a_table() -> None:
    catboost, pd = pytest.importorskip("catboost"), pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": X32[:, 0].astype(float), "city": RNG.choice(["Rome", "Oslo"], size=N)})
    y = frame["age"] + (frame["city"] == "Rome")
    model = catboost.CatBoostRegressor(
        iterations=20, cat_features=["city"], verbose=0, allow_writing_files=False, random_seed=0
    ).fit(frame, y)
    result = rl.model_reliance(model, frame, y, compare="difference")
    base, losses = np.mean((y - model.predict(frame)) ** 2), []
    for k in range(N):
        switched = frame.assign(city=frame["city"].iloc[k])
        losses.append(np.delete(np.asarray((y - model.predict(switched)) ** 2), k))
    np.testing.assert_allclose(result.values[1], np.mean(losses) - base, rtol=1e-9)


def test_a_compiled_torch_module() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    compiled = torch.compile(net, backend="eager")  # needs no compiler of C++; the wrapper is the same
    X, y = torch.from_numpy(X32), torch.from_numpy(Y)

    def predict(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return net.eval()(torch.from_numpy(rows)).numpy()

    assert_literal(compiled, predict, X, y)
    assert_literal(compiled, predict)  # host arrays go to the module


def test_equinox() -> None:
    eqx, jax = pytest.importorskip("equinox"), pytest.importorskip("jax")
    network = eqx.nn.MLP(3, "scalar", width_size=4, depth=1, key=jax.random.key(0))
    model = jax.vmap(network)  # an Equinox network takes one row
    X, y = jax.numpy.asarray(X32), jax.numpy.asarray(Y)
    assert_literal(model, lambda rows: np.asarray(model(jax.numpy.asarray(rows))), X, y)


def test_flax_with_parameters_bound() -> None:
    linen, jax = pytest.importorskip("flax.linen"), pytest.importorskip("jax")
    network = linen.Dense(1)
    X, y = jax.numpy.asarray(X32), jax.numpy.asarray(Y)
    model = functools.partial(network.apply, network.init(jax.random.key(0), X))
    assert_literal(model, lambda rows: np.asarray(model(jax.numpy.asarray(rows))), X, y)


def test_flax_nnx() -> None:
    nnx, jax = pytest.importorskip("flax.nnx"), pytest.importorskip("jax")
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    X, y = jax.numpy.asarray(X32), jax.numpy.asarray(Y)
    assert_literal(model, lambda rows: np.asarray(model(jax.numpy.asarray(rows))), X, y)


KERAS = """
import numpy as np, keras, sys
sys.path.insert(0, {here!r})
import test_adapters as t
keras.utils.set_random_seed(0)
hidden = [keras.layers.Dense(4, "tanh"), keras.layers.Dropout(0.5)]
model = keras.Sequential([keras.Input((3,)), *hidden, keras.layers.Dense(1)])
predict = lambda rows: keras.ops.convert_to_numpy(model(rows, training=False))
t.assert_literal(model, predict)
two = keras.Model(model.inputs, {{"a": model.outputs[0], "b": model.inputs[0]}})
t.assert_literal(t.rl.models.keras(two, output="a"), predict)
t.assert_literal(model, predict, keras.ops.convert_to_tensor(t.X32), keras.ops.convert_to_tensor(t.Y))
print("same on", keras.backend.backend())
"""


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.slow
def test_keras_on_its_backends(framework: str) -> None:
    """In a process of its own: Keras chooses its backend when it is imported."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed")
    code = KERAS.format(here=str(Path(__file__).parent))
    environment = {**os.environ, "KERAS_BACKEND": framework}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"same on {framework}" in done.stdout


def onnx_file(path: Path, rows: Any = None, inputs: int = 1) -> str:
    """X @ w of one input, or X @ w + age of two."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    values = [helper.make_tensor_value_info("X", kinds.FLOAT, [rows, 3])]
    nodes = [helper.make_node("MatMul", ["X", "w"], ["sum" if inputs == 2 else "answer"])]
    if inputs == 2:
        values.append(helper.make_tensor_value_info("age", kinds.FLOAT, [rows]))
        nodes.append(helper.make_node("Add", ["sum", "age"], ["answer"]))
    weight = helper.make_tensor("w", kinds.FLOAT, [3], WEIGHTS.tolist())
    answer = helper.make_tensor_value_info("answer", kinds.FLOAT, [rows])
    graph = helper.make_graph(nodes, "linear", values, [answer], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    file = path / "linear.onnx"
    onnx.save(model, file)
    return str(file)


def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = rl.models.onnx(onnx_file(tmp_path))
    assert_literal(model, lambda rows: rows @ WEIGHTS)
    wide = rl.model_reliance(model, X32.astype(np.float64), Y, compare="difference")
    np.testing.assert_allclose(wide.values, literal(lambda rows: rows @ WEIGHTS), rtol=2e-4, atol=2e-5)


def test_onnx_of_several_inputs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = rl.models.onnx(onnx_file(tmp_path, inputs=2))
    age = RNG.normal(size=N).astype(np.float32)
    result = rl.model_reliance(model, {"X": X32, "age": age}, Y, compare="difference")
    base = (Y - X32 @ WEIGHTS - age) ** 2
    losses = [np.delete((Y - X32 @ WEIGHTS - age[k]) ** 2, k) for k in range(N)]
    np.testing.assert_allclose(result.values[1], np.mean(losses) - base.mean(), rtol=1e-4)
    assert result.names == ("X", "age")


def test_bad_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = onnx_file(tmp_path)
    with pytest.raises(ValueError, match=r"output='label' is not an output of 'linear.onnx': it has \['answer'\]"):
        rl.models.onnx(file, output="label")
    with pytest.raises(TypeError, match="input 'X' is float32 but X is int64: convert X"):
        rl.permutation_importance(rl.models.onnx(file), np.arange(9).reshape(3, 3), np.arange(3))
    (tmp_path / "one").mkdir()
    with pytest.raises(ValueError, match="takes exactly 1 rows at a time: export the model with a dynamic first axis"):
        rl.models.onnx(onnx_file(tmp_path / "one", rows=1))
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="takes NumPy arrays, not a torch"):
        rl.permutation_importance(rl.models.onnx(file), torch.zeros(4, 3), torch.zeros(4))


class Scores:
    """A library's model that is neither callable nor has predict()."""

    def __init__(self) -> None:
        self.open = 0

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        self.open += 1
        yield
        self.open -= 1

    def score(self, rows: np.ndarray) -> np.ndarray:
        assert self.open == 1, "called outside of its session, or inside of two"
        return rows[:, 0] - 2 * rows[:, 1]


def test_an_adapter_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = Scores(), np.random.default_rng(0).normal(size=(30, 3))
    y = X[:, 0]
    with pytest.raises(TypeError, match="cannot be called"):
        rl.model_reliance(model, X, y, compare="difference")

    def scores(model: object, losses: object) -> rl.models.Model | None:
        return rl.models.Model(model.score, model, session=model.session) if isinstance(model, Scores) else None

    monkeypatch.setattr(rl.models.adapting, "ADAPTERS", [scores, *rl.models.ADAPTERS])
    found = rl.model_reliance(model, X, y, compare="difference")
    expected = rl.model_reliance(lambda X: X[:, 0] - 2 * X[:, 1], X, y, compare="difference")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
    assert model.open == 0
