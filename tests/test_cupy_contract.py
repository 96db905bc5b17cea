"""CuPy, bound without a GPU: every call that the library makes on its namespace fits CuPy's signatures.

The engine and the public functions run on array-api-strict while a recorder notes each namespace function, array
attribute and operator that *this library's* code uses, with its arguments; each is then bound to
`array_api_compat.cupy` and `cupy.ndarray`. What this cannot see: values, and whatever only happens on a device.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytest

import reliance as rl
from methods import population_variance
from reliance import functional
from reliance.inference import variance
from reliance.samplers import residual as samplers
from test_trees import made

strict = pytest.importorskip("array_api_strict")
cupy = pytest.importorskip("cupy")
xp = pytest.importorskip("array_api_compat.cupy")

StrictArray = type(strict.zeros(()))
# CuPy's ufuncs behind the operators whose names differ.
UFUNCS = {
    "and": "bitwise_and", "or": "bitwise_or", "invert": "invert", "sub": "subtract", "rsub": "subtract",
    "mul": "multiply", "rmul": "multiply", "add": "add", "radd": "add", "truediv": "true_divide",
    "rtruediv": "true_divide", "pow": "power", "rpow": "power", "neg": "negative", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "mod": "remainder", "xor": "bitwise_xor",
    "floordiv": "floor_divide",
}  # fmt: skip


class Call(NamedTuple):
    """A call: its positional arguments and keywords, each a NumPy dtype for an array, otherwise a type."""

    positional: tuple
    keywords: tuple


class Recorder:
    """Notes what the library's own frames do to the namespace and its arrays."""

    def __init__(self):
        self.functions, self.operators, self.attributes = defaultdict(set), defaultdict(set), defaultdict(set)
        self.indices = set()

    @staticmethod
    def _ours():
        """Whether the caller of the caller is a module of the library: strict's own code uses its arrays, too."""
        return sys._getframe(2).f_globals["__name__"].startswith("reliance")

    def function(self, name, inner):
        def call(*args, **kwargs):
            if self._ours():
                found = Call(tuple(map(kind, args)), tuple((k, kind(v)) for k, v in sorted(kwargs.items())))
                self.functions[name].add(found)
            return inner(*args, **kwargs)

        return call

    def operator(self, name, inner):
        def call(array, *others):
            if self._ours():
                if name in ("__getitem__", "__setitem__"):
                    index = others[0] if isinstance(others[0], tuple) else (others[0],)
                    self.indices.update(map(kind, index))
                self.operators[name].add(tuple(map(kind, (array, *others))))
            return inner(array, *others)

        return call

    def attribute(self):
        def get(array, name):
            found = object.__getattribute__(array, name)  # asking whether there is such an attribute is no use of it
            if self._ours():
                self.attributes[name].add(sys._getframe(1).f_code.co_name)
            return found

        return get

    def install(self, patch):
        for owner, prefix in ((strict, ""), (strict.fft, "fft."), (strict.linalg, "linalg.")):
            for name, inner in vars(owner).items():
                if isinstance(inner, types.FunctionType) and not name.startswith("_"):
                    patch.setattr(owner, name, self.function(prefix + name, inner))
        for name, inner in list(vars(StrictArray).items()):
            if name.strip("_") in UFUNCS or name in ("__getitem__", "__setitem__", "__matmul__"):
                patch.setattr(StrictArray, name, self.operator(name, inner))
        patch.setattr(StrictArray, "__getattribute__", self.attribute())


def kind(value):
    if isinstance(value, StrictArray):
        return object.__getattribute__(value, "_array").dtype
    if type(value).__name__ == "DType":
        return "dtype"
    return type(value)


def everything():
    """Run the three methods and the functional layer through all of their branches."""
    rng = np.random.default_rng(0)
    n = 10
    host = rng.uniform(0.1, 0.9, size=(n, 3))
    labels = np.arange(n) % 2
    methods = [
        (rl.model_reliance, {}),
        (rl.model_reliance, {"pairs": "halves"}),
        (rl.permutation_importance, {"draws": 4}),
        (rl.ablation_importance, {"draws": 3}),
    ]
    for dtype in (strict.float32, strict.float64):
        X, w = (strict.asarray(values, dtype=dtype) for values in (host, host[:, 1]))
        y, sign = (strict.asarray(values, dtype=dtype) for values in (host[:, 2], 2.0 * labels - 1.0))
        label = strict.asarray(labels)
        scores = lambda X: strict.stack([X[:, 0], X[:, 1], 1.0 - X[:, 2]], axis=1)  # noqa: E731
        cases = [
            (lambda X: X[:, 0], y, ["squared_error", "absolute_error", "huber", "pinball", "poisson_deviance"], {}),
            (lambda X: X[:, 0], y, ["r2", "rmse", "prediction_shift"], {"weights": w, "features": [0, (0, 2)]}),
            (lambda X: X[:, 0], label, ["auc", "log_loss", "cross_entropy"], {"run": rl.Run(block=(4, 2))}),
            (lambda X: X[:, :1], sign, "hinge", {"run": rl.Run(block=(4, 2)), "weights": w}),
            (scores, label, ["zero_one", "cross_entropy", "accuracy"], {}),
            (lambda X: strict.astype(X[:, 0] > 0.5, strict.int64), label, "zero_one", {}),
            (lambda X: X, X, "squared_error", {}),
            (lambda X: X[:, 0], y, rl.Metric(lambda y, p: strict.max(p), name="largest"), {"run": rl.Run(block=5)}),
        ]
        for function, settings in methods:
            for model, target, loss, extra in cases:
                function(model, X, target, loss=loss, rng=1, **settings, **extra, **_difference(function))
        probability = lambda X: strict.stack([X[:, 0], 1.0 - X[:, 0]], axis=1)  # noqa: E731
        rl.model_reliance(probability, X, label, loss=["log_loss", "auc"])
        cube = strict.reshape(X, (n, 3, 1))
        rl.model_reliance(lambda X: X[:, 0, 0], cube, y, features=np.array([[0], [1], [1]]))
        _pieces(X, y, w)
        for leaves in ((5, 40), (70, 2)):
            rl.model_reliance(made(0, leaves, columns=3, categorical=(1,)), X, y, weights=w, features=[0, 1, (0, 2)])
        for sampler in ("gaussian", samplers.Gaussian(draws="normal"), "knn", "leaves"):
            rl.relative_importance(
                lambda X: X[:, 0], X, y, given=rl.Given([1], sampler=sampler), features=[0], draws=3, rng=1
            )
        rl.conditional_model_reliance(lambda X: X[:, 0], X, y, weights=w, features=[0])
        _classes(X, y, label)


def _classes(X, y, label):
    """What classes of models do with rows before the small solvers of the host."""
    y = y + X[:, 0] * X[:, 1]  # no column
    classes = [
        (rl.LinearClass(), y),
        (rl.LinearClass(ridge=1.0), y),
        (rl.LinearClass(loss="logistic", ridge=1.0), label),
        (rl.KernelClass(landmarks=3, radius=1.0), y),
        (rl.KernelClass(kernel="polynomial", landmarks=3, radius=1.0), y),
        (rl.FiniteClass([lambda X: X[:, 0], lambda X: X[:, 1]]), y),
    ]
    for given, target in classes:
        for measure in (rl.model_class_reliance, rl.conditional_model_class_reliance):
            found = measure(given, X, target, epsilon=2.0, features=[0], rng=0)
            found.lower_models[0](X)


def _difference(function):
    return {"compare": "difference"} if function is rl.model_reliance else {}


def _pieces(X, y, w):
    model = lambda X: X[:, 0] * X[:, 1]  # noqa: E731
    functional.base_risk(model, X, y)
    functional.switched_losses(model, X, y, (0, 2), strict.stack([X, X], axis=2))
    functional.shifted_risk(model, X, y, 1, [1, 2])
    for block in (None, 4):
        functional.pairwise_risk(model, X, y, [0, 1], block=block)
    rows, donors, spread = functional.pairwise_moments(model, X, y, 0)
    for ratio in (False, True):
        functional.hull(strict.mean(rows), spread, functional.skewness(rows + donors, spread), 2.0, ratio)
    for plan in ("pairs", "shifts", "resample", "permutations", "halves"):
        for draws in (1, 4):
            h = variance.kernel(rows, donors, spread, w, w, w, draws)
            indicator = strict.asarray([0, 1, 1, 0, 1, 0, 1, 0, 0, 0], dtype=X.dtype)
            population_variance(plan, h.rows, h.donors, h.total, draws, indicator=indicator, lent=w)


def record():
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        everything()
    return recorder


RECORD = record()


def find(name):
    """The object of CuPy's namespace."""
    found = xp
    for part in name.split("."):
        assert hasattr(found, part), f"array_api_compat.cupy has no {name}"
        found = getattr(found, part)
    return found


def check_ufunc(ufunc, arguments):
    """Enough inputs, and a loop that takes the arrays' dtypes without losing anything; Python scalars follow them."""
    assert len(arguments) == ufunc.nin
    arrays = [(place, dtype) for place, dtype in enumerate(arguments) if isinstance(dtype, np.dtype)]
    loops = [loop for loop in ufunc.types if "E" not in loop]  # CuPy's code for bfloat16, which NumPy does not have
    fits = [all(np.can_cast(dtype, np.dtype(loop[place]), "safe") for place, dtype in arrays) for loop in loops]
    assert any(fits), f"{ufunc} has no loop for {arguments}: it has {ufunc.types}"


@pytest.mark.parametrize("name", sorted(RECORD.functions))
def test_function(name):
    function = find(name)
    for call in sorted(RECORD.functions[name], key=str):
        keywords = dict(call.keywords)
        if isinstance(function, cupy.ufunc):
            assert not keywords
            check_ufunc(function, call.positional)
            continue
        signature = inspect.signature(function)
        signature.bind(*call.positional, **keywords)
        # Wrappers take **kwargs, which would swallow a keyword that CuPy does not know.
        assert set(keywords) <= set(signature.parameters), (name, keywords)


@pytest.mark.parametrize("name", sorted(RECORD.operators))
def test_operator(name):
    assert callable(getattr(cupy.ndarray, name))
    if name.strip("_") in UFUNCS:
        ufunc = getattr(cupy, UFUNCS[name.strip("_")])
        for arguments in sorted(RECORD.operators[name], key=str):
            check_ufunc(ufunc, arguments)


@pytest.mark.parametrize("name", sorted(RECORD.attributes))
def test_attribute(name):
    assert hasattr(cupy.ndarray, name), f"cupy.ndarray has no {name}"


def test_arrays_are_not_indexed_by_arrays():
    """Boolean masks wait for the device, and integer arrays are not in the standard: `take` is."""
    assert RECORD.indices <= {slice, int, type(None), type(...)}


def test_recording_holds_the_core():
    core = "take reshape where sum concat stack broadcast_to zeros_like all isfinite astype cumulative_sum argsort "
    core += "searchsorted take_along_axis empty arange full mean var exp log sqrt isdtype result_type finfo fft.rfft"
    assert set(core.split()) <= set(RECORD.functions)
    assert {"__sub__", "__mul__", "__getitem__", "__setitem__", "__invert__", "__pow__"} <= set(RECORD.operators)
    assert {"shape", "ndim", "dtype"} <= set(RECORD.attributes)


def test_nothing_waits_for_the_device():
    """CuPy refuses ``__array__``, has no ``to_device``, and these functions synchronise."""
    assert RECORD.attributes["__array__"] == {"to_host"}  # which does not use it on CuPy
    assert "to_device" not in RECORD.attributes
    synchronising = ("clip", "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values", "from_dlpack")
    assert not set(synchronising) & set(RECORD.functions)


def test_a_misfit_is_found():
    """Of strict's names and keywords, those that CuPy does not take must fail the binding."""
    signature = inspect.signature(find("sum"))
    assert "initial" not in signature.parameters
    with pytest.raises(AssertionError, match="has no nonsense"):
        find("nonsense")
    with pytest.raises(AssertionError, match="no loop"):
        check_ufunc(cupy.bitwise_and, (np.dtype("float32"), np.dtype("float32")))


def test_what_array_does_on_cupy_alone():
    """The branches of `_array` that no other backend takes: upload, download, the device as a context."""
    inspect.signature(xp.asarray).bind(np.ones(2), dtype=np.float64)
    assert callable(cupy.ndarray.get)
    assert callable(cupy.cuda.Device.__enter__)
    assert isinstance(cupy.ndarray.device, property | types.GetSetDescriptorType)
