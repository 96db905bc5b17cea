"""What can be called as a model: callables, scikit-learn estimators, torch modules, JAX functions."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import (
    describe,
    device,
    from_host,
    inference_only,
    is_array,
    is_floating,
    is_out_of_memory,
    namespace,
    same_device,
    to_host,
)
from reliance._core.kinds import Array, Device, HostArray, Operand
from reliance._core.words import shown
from reliance.data import on_disk, tables
from reliance.data.rows import Rows
from reliance.data.tables import Table
from reliance.models import ensembles, placing, tree_readers
from reliance.models.adapters import onnx
from reliance.models.additive import Additive
from reliance.models.chosen_output import choose
from reliance.models.ensembles import Ensemble
from reliance.models.modules import home as torch_home
from reliance.models.modules import in_dtype, is_torch_sequence
from reliance.models.networks import module_of
from reliance.models.probes import probe
from reliance.models.untouched import inherits, plain_torch

__all__ = ["FirstLayer", "Linear", "Model", "onnx"]

# Libraries whose estimators take NumPy arrays, and say so of others in their own ways.
_ON_THE_HOST = ("catboost", "lightgbm", "xgboost", "sklearn")
_SKLEARN_METHODS = ("predict", "_decision_function")


@dataclass(frozen=True)
class Model:
    """A model as the engine sees it.

    Attributes
    ----------
    predict : callable
        ``(m, *features) -> (m, ...)``, on the namespace and device of its input.
    source : object
        What the user passed: compiled functions are shared between calls that pass the same object.
    classes : array or None
        The labels that the columns of predicted probabilities stand for.
    block_rows : int or None
        How many rows a call should have, where the default is a bad choice.
    session : callable
        A context in which the model is called: evaluation mode, for instance.
    method : str or None
        Which method of an estimator ``predict`` is.
    trees : Ensemble or None
        What ``predict`` is instead, if it is trees that were read from an estimator.
    parts : mapping or None
        Where several methods of an estimator answer side by side: the columns of each (``responses.SideBySide``).
    table : Table or None
        Whose codes of text, categories or dates the rows hold, if any.
    """

    predict: Callable[[Operand], Array]
    source: object
    classes: HostArray | None = None
    block_rows: int | None = None
    session: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    method: str | None = None
    trees: Ensemble | None = None
    parts: Mapping[str, tuple[int, int]] | None = None
    table: Table | None = None

    @cached_property
    def trees_read(self) -> Ensemble | str:
        """The trees that its source holds, read once a call; or why there are none, if there are words for it."""
        return "" if self.method is None else tree_readers.attempt(self.source, self.method, self.table)

    @property
    def shown(self) -> tuple[int, int] | None:
        """The columns that curves show, of several methods' answers: probabilities, or else scores."""
        return None if self.parts is None else self.parts.get("probability", self.parts.get("score"))


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model ``X @ coef + intercept``, whose all-pairs reliance is known in closed form.

    Parameters
    ----------
    coef : array (P,)
        Of the namespace and on the device of the rows it will be called with.
    intercept : float

    Examples
    --------
    >>> Linear(np.array([1.0, 2.0]), 3.0)(np.array([[1.0, 1.0]])).tolist()
    [6.0]
    """

    coef: Array
    intercept: float = 0.0

    def __post_init__(self) -> None:
        if not is_array(self.coef) or self.coef.ndim == 0:
            raise TypeError(f"coef={shown(self.coef)}: pass an array (P,) of the kind that the rows are of")

    def __call__(self, X: Array) -> Array:
        _check_width(X, self.coef, "coef")
        return X @ self.coef + self.intercept


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """A model that begins with an affine layer, ``rest(X @ weight + bias)``.

    With all pairs of one feature the first product is not computed again: its column's part of it is exchanged.

    Parameters
    ----------
    weight : array (P, h)
    bias : array (h,) or float
    rest : callable
        ``(m, h) -> (m, ...)``.

    Examples
    --------
    >>> model = FirstLayer(np.ones((2, 3)), 0.0, lambda H: H.max(axis=1))
    >>> model(np.array([[1.0, 1.0]])).tolist()
    [2.0]
    """

    weight: Array
    bias: Array | float
    rest: Callable[[Array], Array]

    def __call__(self, X: Array) -> Array:
        _check_width(X, self.weight, "weight")
        return self.rest(X @ self.weight + self.bias)


def _check_width(X: Array, factor: Array, name: str) -> None:
    if X.shape[-1] != factor.shape[0]:
        raise ValueError(f"{name} has shape {tuple(factor.shape)}, but X has {X.shape[-1]} columns: one entry for each")


def first_layer(model: object) -> FirstLayer | None:
    """The model as a first affine layer and the rest, if it is known to be that."""
    if isinstance(model, FirstLayer):
        return model if inherits(model, ("__call__",), "reliance") else None
    if not is_torch_sequence(model):
        return None
    import torch

    first = model[0] if len(model) > 1 else None
    if first is None or type(first) is not torch.nn.Linear or not (plain_torch(model) and plain_torch(first)):
        return None
    bias = 0.0 if first.bias is None else first.bias.detach()
    rest, name = model[1:], name_of(model)
    return FirstLayer(first.weight.detach().T, bias, lambda hidden: choose(rest(hidden), None, name))


def ensemble_of(model: Model) -> Ensemble | None:
    """The trees of a model that is known to be an ensemble of them, predicting what the model predicts."""
    if model.trees is not None:
        return model.trees
    if isinstance(model.source, Ensemble):
        return model.source if type(model.source) is Ensemble else None
    return None if isinstance(model.trees_read, str) else model.trees_read


def on_rows_of(model: Model, rows: Rows) -> Model:
    """The model as one of the arrays that rows are made of."""
    if rows.streamed is None:
        return on_arrays_of(model, rows.X)
    again, names, name = on_disk.as_they_came(rows.streamed), rows.streamed.source.names, name_of(model.source)
    if again is not None:
        return dataclasses.replace(model, predict=placing.on_sparse(model.predict, again, name))
    named = None if names is None else placing.by_name(model.predict, model.source, names, name)
    return _of_integers(model, rows.flat) if named is None else dataclasses.replace(model, predict=named)


def on_arrays_of(model: Model, X: Array) -> Model:
    """A tree ensemble that was fitted on the host, as a model of the arrays that X is made of.

    Its library takes NumPy arrays only. The trees are read, checked against the library's predictions for the rows of
    X and for some replaced ones, and evaluated where X is; a model that cannot be read stays as it is.
    """
    if module_of(model.source) is not None:
        return _of_integers(model, X)
    if isinstance(X, np.ndarray) or model.method is None or X.ndim != 2:
        return model
    ensemble = None if isinstance(model.trees_read, str) else model.trees_read
    if ensemble is None or ensemble.n_features != X.shape[1]:
        if type(model.source).__module__.partition(".")[0] not in _ON_THE_HOST:
            return model
        name = name_of(model.source)[:60]
        return _explained(model, f"model {name} cannot take a {describe(X)}: pass X and y as NumPy", (Exception,))
    replaced = probe(X, [(j,) for j in range(X.shape[1])]).block
    with inference_only(namespace(X)):
        own, other = to_host(ensemble(X)), to_host(ensemble(replaced))
        clear = ensembles.settled(ensemble, to_host(ensemble.raw(replaced)))
    if not ensembles.agrees(ensemble, own, to_host(model.predict(to_host(X)))):
        return model
    if not ensembles.agrees(ensemble, other[clear], to_host(model.predict(to_host(replaced)))[clear]):
        return model
    return dataclasses.replace(model, predict=ensemble, trees=ensemble, block_rows=None)


def on_table(model: Model, table: Table) -> Model:
    """The model as one of the engine's numbers, called with tables of the user's own kind if it takes any."""
    source = model.source
    if _takes_arrays(source, table.names):
        tables.check_numbers(table, range(len(table.names)), f"model {name_of(source)} takes arrays, but X")
        return model
    return dataclasses.replace(model, predict=tables.called(model.predict, table), table=table)


def _takes_arrays(model: object, names: Sequence[str]) -> bool:
    """Whether a model does not know tables, or was fitted without the names of this one."""
    if module_of(model) is not None or isinstance(model, Linear | FirstLayer | Additive | Ensemble):
        return True
    if not hasattr(model, "n_features_in_") or hasattr(model, "feature_names_in_"):
        return False
    return list(names) != list(getattr(model, "feature_names_", ()))  # CatBoost's own word for them


def linear_form(model: object) -> tuple[NDArray[np.float64], float] | None:
    """Coefficients (P,) and intercept of a model that is known to be linear with one output; None otherwise."""
    if isinstance(model, Linear):
        own = inherits(model, ("__call__",), "reliance")
        return (np.asarray(to_host(model.coef), dtype=np.float64), float(model.intercept)) if own else None
    if "sklearn" not in sys.modules:
        return None
    from sklearn.linear_model._base import LinearModel
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    *scalers, last = [step for step in steps if step not in (None, "passthrough")] or [None]
    if not isinstance(last, LinearModel) or not all(isinstance(scaler, StandardScaler) for scaler in scalers):
        return None
    # A subclass may predict otherwise, and so does what was patched.
    if not all(inherits(step, (*_SKLEARN_METHODS, "transform"), "sklearn") for step in (model, *scalers, last)):
        return None
    coef, intercept = np.asarray(last.coef_, dtype=np.float64), np.asarray(last.intercept_, dtype=np.float64)
    if (coef.ndim == 2 and coef.shape[0] != 1) or intercept.size != 1:
        return None
    coef, constant = coef.reshape(-1), float(intercept.reshape(-1)[0])
    for scaler in reversed(scalers):
        if scaler.with_std:
            coef = coef / scaler.scale_
        if scaler.with_mean:
            constant -= float(coef @ scaler.mean_)
    return coef, constant


def never_writes(model: object) -> bool:
    """Whether a model is known to leave its input as it is, so that the rows need not be copied for it."""
    if type(model) is Linear:
        return True
    if "sklearn" not in sys.modules or not type(model).__module__.startswith("sklearn."):
        return False
    from sklearn.linear_model._base import LinearModel

    return isinstance(model, LinearModel) and inherits(model, _SKLEARN_METHODS, "sklearn")


@contextlib.contextmanager
def unchecked(model: object) -> Iterator[None]:
    """Without scikit-learn's look at every number, for models that `never_writes` knows: they predict NaN from NaN."""
    if type(model) is Linear:
        yield
        return
    from sklearn import config_context

    with config_context(assume_finite=True):
        yield


def name_of(model: object) -> str:
    return getattr(model, "__qualname__", None) or type(model).__name__


def at_home(
    model: object, X: Array, y: Array | None, weights: Array | None, wanted: Device = None
) -> tuple[Array, Array | None, Array | None]:
    """Move the data, once and explicitly, to the device of a torch module, floating rows to its dtype if it has one.

    NumPy data go where the module is. A tensor on another device is an error: which of the two moves is the user's
    decision. Integers stay: whether a module takes them it says itself, see `_of_integers`. Rows that go in blocks, to
    the device that is ``wanted`` or because they are too many, do not move now: see `placing`.
    """
    streamed = placing.in_blocks(model, X, wanted)
    if streamed is not None:
        y, weights = (a if a is None else from_host(to_host(a), streamed.xp, streamed.device) for a in (y, weights))
        return streamed, y, weights
    module = module_of(model)
    if module is None:
        return X, y, weights
    import array_api_compat.torch as xp

    home = torch_home(module)
    dev, dtype = (device(xp.empty(0)), None) if home is None else home
    if isinstance(X, np.ndarray):
        y, weights = (a if a is None else from_host(to_host(a), xp, dev) for a in (y, weights))
        X = from_host(X, xp, dev)
    elif namespace(X) is not xp:
        raise TypeError(f"X is a {describe(X)} but the model is a torch module: pass X as a torch tensor")
    elif device(X) != dev:
        raise ValueError(
            f"X is on {device(X)} but the model's parameters are on {dev}: move one of them, for instance "
            f"X.to({str(dev)!r})"
        )
    return in_dtype(X, dtype), y, weights


def _of_integers(model: Model, X: Array) -> Model:
    """A torch module that is called with integers: if it takes none, the error says what to do."""
    module = module_of(model.source)
    home = None if module is None else torch_home(module)
    if home is None or is_floating(namespace(X), X.dtype):
        return model
    computes, wanted = ("several dtypes", "torch.float32") if home[1] is None else (home[1], home[1])
    words = f"X has dtype {X.dtype} but the model computes in {computes}: pass X.to({wanted}), or a function"
    return _explained(model, words, (RuntimeError, TypeError))


def _explained(model: Model, words: str, kinds: tuple[type[Exception], ...]) -> Model:
    """The model, whose own errors of these kinds are raised with words that say what to do."""

    def predict(block: Array) -> Array:
        try:
            return model.predict(block)
        except kinds as error:
            if is_out_of_memory(error):
                raise
            reason = (str(error).strip().splitlines() or [""])[0]
            raise TypeError(f"{words} ({reason[:100]})") from error

    return dataclasses.replace(model, predict=predict)


def check_prediction(prediction: Array, block: Array, model: Model) -> None:
    """A prediction must be an array of the block's own kind with one entry per row. Looks at no values."""
    rows = block.shape[0]
    same_kind = type(prediction) is type(block)
    if same_kind and prediction.shape[:1] == block.shape[:1]:
        return
    name = name_of(model.source)
    if isinstance(prediction, np.ma.MaskedArray):
        raise TypeError(
            f"model {name} returned a masked array, whose masked entries are no predictions: return an array, or drop "
            "the rows that it masks"
        )
    if not is_array(prediction):
        raise TypeError(
            f"model {name} returned {type(prediction).__name__}, not an array: return one prediction per row as a "
            f"{describe(block)}"
        )
    if not same_kind and namespace(prediction) is not namespace(block):
        raise TypeError(
            f"model {name} returned a {describe(prediction)} for a {describe(block)}: convert X to the arrays that "
            "the model works on, or convert inside the model"
        )
    if prediction.ndim == 0 or prediction.shape[0] != rows:
        raise ValueError(
            f"model {name} returned shape {tuple(prediction.shape)} for {rows} rows: the first axis must have one "
            "entry per row"
        )


def check_device(prediction: Array, block: Array, model: Model) -> None:
    """Predictions must be where the rows are."""
    if not same_device(prediction, block):
        raise ValueError(
            f"model {name_of(model.source)} returned a {describe(prediction)} for a {describe(block)}: move the model "
            "or X, so that both are on one device"
        )


def changes_input(model: Model) -> ValueError:
    """What is said of a model that writes into the rows it is given."""
    return ValueError(
        f"model {name_of(model.source)} changes its input: work on a copy inside the model, because the rows it is "
        "given are used again"
    )
