"""What an estimator answers: which of its methods losses need, several of them side by side, labels as positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reliance._core.arrays import device, from_host, is_array, is_floating, namespace, to_host
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.data import tables
from reliance.losses.functions import Loss, Metric, compares_labels
from reliance.models import pipelines, tree_readers

_METHODS = {"value": "predict", "probability": "predict_proba", "score": "decision_function"}
_SEPARATELY = "measure these losses in separate calls"


@dataclass(frozen=True)
class Response:
    """What is called in the place of an estimator.

    Attributes
    ----------
    predict : callable
    method : str or None
        Which method it is; None if it is several.
    classes : array or None
        The labels that predictions are positions of, or that their columns stand for.
    parts : mapping or None
        Of several methods: the columns (start, stop) of each form of answer.
    """

    predict: Callable[..., Array]
    method: str | None
    classes: HostArray | None
    parts: Mapping[str, tuple[int, int]] | None = None


def respond(model: object, functions: Sequence[Loss | Metric], name: str) -> Response:
    """The method that the losses need: ``predict``, ``predict_proba`` or ``decision_function``, or several of them."""
    wanted = {_METHODS[function.output]: function.name for function in reversed(functions)}
    if set(wanted) == {"predict", "predict_proba"} and _takes_largest(model, functions):
        del wanted["predict"]
    for method, loss in wanted.items():
        if getattr(model, method, None) is None:
            raise TypeError(f"model={name} has no {method}, which loss={shown(loss)} needs: {_instead(model, method)}")
    classes = getattr(model, "classes_", None)
    if len(wanted) == 1:
        method = next(iter(wanted))
        classes = None if method == "predict" else classes
        if isinstance(classes, list):
            raise ValueError("model has several outputs with classes of their own: pass a function for one of them")
        return Response(getattr(model, method), method, None if classes is None else np.asarray(classes))
    losses = [function.name for function in functions]
    if classes is None or isinstance(classes, list):
        raise ValueError(
            f"loss={losses} needs {' and '.join(wanted)}, and model={name} has no classes_ that say which columns are "
            f"whose: {_SEPARATELY}"
        )
    both = SideBySide.of(model, {_form(function) for function in functions}, np.asarray(classes), name)
    return Response(both, None, both.classes, both.parts)


def _takes_largest(model: object, functions: Sequence[Loss | Metric]) -> bool:
    """Whether all that is wanted of ``predict`` is labels, and these are known to be the most probable classes.

    Trees are known to do that, and then probabilities can be had from the trees alone.
    """
    labels = all(compares_labels(function) for function in functions)
    return labels and tree_readers.is_understood(pipelines.last_estimator(model), "predict_proba")


def _instead(model: object, method: str) -> str:
    others = {
        "predict_proba": ("decision_function", "loss='cross_entropy' or 'hinge' reads its decision_function"),
        "decision_function": ("predict_proba", "loss='log_loss' reads its predict_proba"),
    }
    other, words = others.get(method, ("", ""))
    if other and getattr(model, other, None) is not None:
        return words
    return "choose another loss, or pass a function batch -> predictions"


def _form(function: Loss | Metric) -> str:
    if function.output != "value":
        return function.output
    return "place" if compares_labels(function) else "label"


def assigned(functions: Sequence[Loss | Metric], parts: Mapping[str, tuple[int, int]]) -> tuple[Loss | Metric, ...]:
    """The losses, each with its own columns of a `SideBySide` answer."""
    return tuple(dataclasses.replace(function, columns=parts[_form(function)]) for function in functions)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Several methods of a classifier, called with the same rows; their answers as the columns of one array.

    Attributes
    ----------
    classes : array (C,)
    parts : dict
        The columns of each form: "place" (predicted labels as positions among the classes), "label" (as numbers),
        "probability" (C) and "score" (C, or one for two classes).
    """

    model: object
    classes: HostArray
    parts: dict[str, tuple[int, int]]
    name: str

    @classmethod
    def of(cls, model: object, forms: set[str], classes: HostArray, name: str) -> SideBySide:
        count = len(classes)
        if "label" in forms and classes.dtype.kind not in "biuf":
            raise ValueError(
                f"model={name} predicts labels of dtype {classes.dtype}, which are not numbers and cannot stand beside "
                f"its probabilities or scores: {_SEPARATELY}"
            )
        widths = {"place": 1, "label": 1, "probability": count, "score": 1 if count == 2 else count}
        parts, start = {}, 0
        for form, width in widths.items():
            if form in forms:
                parts[form] = (start, start + width)
                start += width
        return cls(model, classes, parts, name)

    def __call__(self, *rows: object, **named: object) -> Array:
        methods = {form: _METHODS.get(form, "predict") for form in self.parts}
        answers = {m: _as_array(getattr(self.model, m)(*rows, **named), m) for m in dict.fromkeys(methods.values())}
        like = next(answer for method, answer in answers.items() if method != "predict")
        xp, dev = namespace(like), device(like)
        # In the precision that probabilities and scores came with, unless it does not hold the labels.
        dtype = xp.result_type(xp.float32, *(a.dtype for a in answers.values() if is_floating(xp, a.dtype)))
        if "label" in self.parts and not np.array_equal(self.classes.astype(np.float32), self.classes):
            dtype = xp.float64
        columns = []
        for form, (start, stop) in self.parts.items():
            answer, width = answers[methods[form]], stop - start
            if form == "place":
                answer = from_host(label_positions(to_host(answer), self.classes), xp, dev)
            if answer.ndim > 2 or (answer.shape[1] if answer.ndim == 2 else 1) != width:
                raise ValueError(
                    f"model={self.name}: its {methods[form]} returned shape {tuple(answer.shape)}, where {width} "
                    f"columns were expected of {len(self.classes)} classes: {_SEPARATELY}"
                )
            columns.append(xp.reshape(xp.astype(answer, dtype), (-1, width)))
        return xp.concat(columns, axis=1)


def _as_array(answer: object, method: str) -> Array:
    if tables.is_column(answer) or tables.is_table(answer):
        answer = tables.as_column(answer, f"the model's {method}")
    if isinstance(answer, np.ma.MaskedArray):
        raise TypeError(
            f"the model's {method} returned a masked array: return an array, or drop the rows that it masks"
        )
    return answer if is_array(answer) else np.asarray(answer)


def label_positions(labels: HostArray, classes: HostArray) -> NDArray[np.int64]:
    """Where each label stands among the classes, in any order; -1 if it does not."""
    if labels.dtype.kind == "O" or classes.dtype.kind == "O":
        place = {label: position for position, label in enumerate(classes.tolist())}
        flat = [place.get(label, -1) for label in labels.reshape(-1).tolist()]
        return np.asarray(flat, dtype=np.int64).reshape(labels.shape)
    if not len(classes) or (labels.dtype.kind in "biuf") != (classes.dtype.kind in "biuf"):
        return np.full(labels.shape, -1, dtype=np.int64)
    order = np.argsort(classes, kind="stable")
    found = order[np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)]
    return np.where(classes[found] == labels, found, -1).astype(np.int64)
