"""Models in files, and by name. A file that could run code when it is loaded is opened only for who trusts it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance._core.words import shown
from reliance.data.passed import ModelLike, Predicts
from reliance.models.adapters import onnx

_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_UNSAFE = {".pkl": "pickle", ".pickle": "pickle", ".joblib": "joblib", ".pt": "torch", ".pth": "torch"}
_FORMATS = "an ONNX file, a model file of LightGBM or XGBoost, or module:object"
_PICKLED = (b"\x80", b"PK\x03\x04")  # pickles, and archives of them


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, the names of its columns if it knows them, and what it wants.

    Attributes
    ----------
    model : object
    names : tuple of str or None
    as_table : bool
        A table rather than an array of numbers.
    categories : bool
        Columns of text as categories of pandas.
    """

    model: ModelLike
    names: tuple[str, ...] | None = None
    as_table: bool = False
    categories: bool = False


@dataclass(frozen=True, eq=False)
class BoosterClassifier:
    """A booster that predicts probabilities of the classes 0, 1, ..."""

    booster: Predicts
    classes_: NDArray[np.int64]

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        found = np.asarray(self.booster.predict(X), dtype=np.float64)
        return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found

    def predict(self, X: object) -> NDArray[np.int64]:
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def load(name: str, trust: bool = False) -> Loaded:
    """The model that a command line names."""
    path = Path(name)
    if not path.exists() and _NAMED.fullmatch(name):
        return _imported(name)
    if not path.is_file():
        raise FileNotFoundError(f"MODEL={shown(name)} is not a file: pass {_FORMATS}")
    with path.open("rb") as file:
        start = file.read(4096)
    suffix = path.suffix.lower()
    if suffix in _UNSAFE or start.startswith(_PICKLED):
        return _unpickled(path, _UNSAFE.get(suffix, "pickle"), trust)
    if suffix == ".onnx":
        return _onnx(path)
    if start.startswith(b"tree"):
        return _lightgbm(path, start)
    if start.startswith(b"{"):
        return _xgboost(path)
    raise ValueError(f"MODEL={shown(name)} is of no known kind: pass {_FORMATS}")


def _imported(name: str) -> Loaded:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"MODEL={shown(name)}: importing {shown(module)} failed: {str(error)[:120]}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"MODEL={shown(name)}: {shown(module)} has no {shown(attribute)}")
        found = getattr(found, part)
    return _estimator(found)


def _estimator(model: ModelLike) -> Loaded:
    """A model of scikit-learn's kind wants the table that it was fitted to, if that had names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return Loaded(model)
    return Loaded(model, tuple(map(str, names)), as_table=True)


def _unpickled(path: Path, kind: str, trust: bool) -> Loaded:
    if not trust:
        raise ValueError(
            f"MODEL={shown(str(path))} is a pickle, which can run any code when it is loaded: add --trust if you know "
            f"where it comes from, or pass {_FORMATS}"
        )
    return _estimator(_UNPICKLERS[kind](path))


def _by_pickle(path: Path) -> ModelLike:
    import pickle

    with path.open("rb") as file:
        found: ModelLike = pickle.load(file)
    return found


def _by_joblib(path: Path) -> ModelLike:
    try:
        import joblib
    except ImportError as error:
        raise ImportError(f"MODEL={shown(str(path))} needs joblib, which is not installed") from error
    found: ModelLike = joblib.load(path)
    return found


def _by_torch(path: Path) -> ModelLike:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"MODEL={shown(str(path))} needs torch, which is not installed") from error
    loaded = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(loaded, torch.nn.Module):
        raise TypeError(f"MODEL={shown(str(path))} holds weights, not a model: pass module:object that loads them")
    found: ModelLike = loaded
    return found


_UNPICKLERS: dict[str, Callable[[Path], ModelLike]] = {"pickle": _by_pickle, "joblib": _by_joblib, "torch": _by_torch}


# ---------------------------------------------------------------------------------------------------------------------
# Formats of their own


def _onnx(path: Path) -> Loaded:
    try:
        model = onnx(path)
    except (ImportError, ValueError, TypeError):
        raise
    except Exception as error:  # onnxruntime's own, of many kinds
        raise ValueError(f"MODEL={shown(str(path))} is not a valid ONNX file: {str(error)[:120]}") from error
    if len(model.inputs) > 1:
        raise ValueError(
            f"MODEL={shown(str(path))} has {len(model.inputs)} inputs: export it with one input of all columns"
        )
    return Loaded(model)


def _lightgbm(path: Path, start: bytes) -> Loaded:
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(f"MODEL={shown(str(path))} needs lightgbm, which is not installed") from error
    try:
        booster = lightgbm.Booster(model_file=str(path))
    except Exception as error:
        raise ValueError(f"MODEL={shown(str(path))} is not a valid model of LightGBM: {str(error)[:120]}") from error
    objective = re.search(rb"^objective=(\w+)", start, re.MULTILINE)
    said = objective[1].decode() if objective else ""
    classes = re.search(rb"^num_class=(\d+)", start, re.MULTILINE)
    model: ModelLike = booster
    if said == "binary" or said.startswith("multiclass"):
        model = BoosterClassifier(booster, np.arange(max(2, int(classes[1]) if classes else 2)))
    categories = bool(booster.pandas_categorical)
    return Loaded(model, tuple(booster.feature_name()), as_table=categories, categories=categories)


def _xgboost(path: Path) -> Loaded:
    try:
        import xgboost
    except ImportError as error:
        raise ImportError(f"MODEL={shown(str(path))} needs xgboost, which is not installed") from error
    booster = xgboost.Booster()
    try:
        booster.load_model(str(path))
    except Exception as error:
        raise ValueError(f"MODEL={shown(str(path))} is not a valid model of XGBoost: {str(error)[:120]}") from error
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    names = None if booster.feature_names is None else tuple(booster.feature_names)
    if objective not in ("binary:logistic", "multi:softprob", "multi:softmax"):
        return Loaded(booster, names)
    model = xgboost.XGBClassifier()  # knows that these are probabilities of classes
    model.load_model(str(path))
    return Loaded(model, names)
