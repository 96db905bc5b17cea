"""What public functions share: the words for their common parameters, and help for keywords of other libraries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from reliance._core.words import closest, shown

P = ParamSpec("P")
R = TypeVar("R")

# Keywords of scikit-learn, captum, alibi, DALEX and R's packages, and ours that say the same.
_FOREIGN = {
    "n_repeats": "draws",
    "nsim": "draws",
    "n_perm_features": "draws",
    "scoring": "loss",
    "loss_fns": "loss",
    "loss_function": "loss",
    "random_state": "rng",
    "seed": "rng",
    "n_jobs": "run=rl.Run(workers=...)",
    "feature_names": "names",
    "sample_weight": "weights",
    "feature_mask": "features",
    "max_samples": "a part of X and y",
    "context": "given=rl.Given(..., context=...)",
    "fit_on": "given=rl.Given(..., fit_on=...)",
    "memory": "run=rl.Run(memory=...)",
    "block": "run=rl.Run(block=...)",
    "workers": "run=rl.Run(workers=...)",
}

# One text for each parameter that several functions share. A docstring names it as {model} on a line of its own.
PARAMETERS = {
    "model": """model : callable, scikit-learn estimator or torch.nn.Module
        ``batch (m, *features) -> predictions (m, ...)`` on the namespace and device of ``X``.""",
    "X": """X : array (n, ...), table, or tuple or dict of arrays
        NumPy, CuPy, JAX or torch; the work happens where it is. Nested lists are taken as NumPy. A table of pandas,
        polars or pyarrow reaches the model as such a table. Several inputs are passed as ``model(*X)`` or
        ``model(**X)``; a feature is one of them, ``(input, slice)`` or ``(input, mask)``.""",
    "y": """y : array (n, ...), optional
        Labels; not needed for ``loss="prediction_shift"``.""",
    "loss": """loss : str, callable, Metric or a list of these, optional
        By default the one that fits the model: log loss for a classifier with probabilities, zero-one for one without,
        squared error for a regressor or a function of numbers; ``result.why_loss`` says which of these it was.
        Names are ``"squared_error"``, ``"absolute_error"``, ``"log_loss"`` (probabilities), ``"cross_entropy"``
        (logits), ``"zero_one"``, ``"hinge"``, ``"huber"``, ``"pinball"``, ``"poisson_deviance"``,
        ``"prediction_shift"``, and the metrics ``"auc"``, ``"r2"``, ``"rmse"``, ``"accuracy"`` (as 1 - AUC, 1 - R2,
        RMSE, 1 - accuracy). A function ``loss(y, prediction) -> (m,)`` gives the loss of each row; a `Metric` is of
        all rows together. A list evaluates the model once and gives a mapping of results.""",
    "compare": """compare : {"difference", "ratio"}
        Replaced risk minus, or over, the base risk.""",
    "features": """features : optional
        What to measure: None for each column; a list of indices, names or tuples of them as groups; a mapping from
        names to columns; an integer mask of the shape of a row for inputs of several dimensions.""",
    "weights": """weights : array (n,), optional
        Weights of the rows' losses. Donors count equally.""",
    "rng": """rng : int, SeedSequence or Generator, optional
        The same seed gives the same donors on every backend and at every block size. A Generator is consumed once.""",
    "run": """run : Run, optional
        How the work is done: ``rl.Run(memory="512MB")`` bounds what may be allocated, see `Run`.""",
    "progress": """progress : bool or callable
        Show a bar, or call ``progress(done, total)``.""",
    "names": """names : sequence of str, optional
        Names of the columns.""",
    "keep": """keep : str or sequence of str
        ``"rows"`` keeps ``row_values`` (p, n).""",
}


def public(function: Callable[P, R]) -> Callable[P, R]:
    """A public function: its docstring is complete, and a keyword that it does not have is answered with help."""
    function.__doc__ = filled(function.__doc__, PARAMETERS)
    parameters = inspect.signature(function).parameters
    known = {name for name, one in parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    open_ended = len(known) < len(parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= known:
            _explain(function.__name__, [name for name in kwargs if name not in known], known, open_ended)
        return function(*args, **kwargs)

    return checked


def filled(doc: str | None, texts: Mapping[str, str]) -> str | None:
    """A docstring in which a line ``{name}`` is replaced by the text of that name."""
    if doc is None:  # python -OO
        return None
    lines = doc.split("\n")
    for place, line in enumerate(lines):
        name = line.strip()
        if name.startswith("{") and name.endswith("}") and name[1:-1] in texts:
            lines[place] = line[: len(line) - len(line.lstrip())] + texts[name[1:-1]]
    return "\n".join(lines)


def _explain(function: str, unknown: list[str], known: set[str], open_ended: bool) -> None:
    for name in unknown:
        if name in _FOREIGN:
            raise TypeError(f"{function}() has no parameter {shown(name)}: pass {_FOREIGN[name]}")
        if not open_ended:
            raise TypeError(f"{function}() has no parameter {shown(name)}: {closest(name, known)}")
