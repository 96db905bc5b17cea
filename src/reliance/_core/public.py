"""What public functions share: the words for their common parameters, and help for keywords of other libraries."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from reliance._core import calls
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

# One text for each parameter that several functions share.
PARAMETERS = {
    "model": """model : callable, scikit-learn estimator or torch.nn.Module
        The fitted model. A function takes rows ``(m, *features)`` and returns predictions ``(m, ...)``, as arrays of
        the kind and on the device of ``X``.""",
    "X": """X : array (n, ...), table, or tuple or dict of arrays
        The rows to measure on: a NumPy, CuPy, JAX or torch array, which stays where it is, or nested lists. A table of
        pandas, polars or pyarrow reaches the model as such a table. Several inputs are passed as ``model(*X)`` or
        ``model(**X)``; a feature is then one of them, ``(input, part)`` with slices or a mask, or a list of these.""",
    "y": """y : array (n, ...), optional
        Labels; not needed for ``loss="prediction_shift"``. For several tasks a mapping from their names to labels.""",
    "loss": """loss : str, callable, Metric, a list or a mapping of these, optional
        What "worse" means. By default the one that fits the model: log loss for a classifier with probabilities,
        zero-one for one without, squared error for a regressor or a function of numbers; ``result.why_loss`` says which
        of these it was. Names are ``"squared_error"``, ``"absolute_error"``, ``"log_loss"`` (probabilities),
        ``"cross_entropy"`` (logits), ``"zero_one"``, ``"hinge"``, ``"huber"``, ``"pinball"``, ``"poisson_deviance"``,
        ``"prediction_shift"``, and the metrics ``"auc"``, ``"r2"``, ``"rmse"``, ``"accuracy"`` (as 1 - AUC, 1 - R2,
        RMSE, 1 - accuracy). A function ``loss(y, prediction) -> (m,)`` returns one loss per row; a `Metric` is of all
        rows together. Losses of torch and optax are taken as they are; `reliance.losses` has those of tokens, masks,
        distributions and survival times. With a list the model is evaluated once, and the results come back as a
        mapping. For tasks of one network, ``{name: (output, loss)}``: an output is a name, a place or a function, as in
        `reliance.models.torch`; a task may bring its labels, ``(output, y, loss)``.""",
    "compare": """compare : {"difference", "ratio"}
        Mean loss with the feature replaced minus, or divided by, the mean loss as it is.""",
    "features": """features : optional
        What to measure: None for each column; a list of indices or names, with tuples of them as groups that are
        replaced together; a mapping from names to columns. Of rows of several dimensions also parts by slices along
        their axes, ``{"red": np.s_[0], "last step": np.s_[:, -1:]}``, or by masks of booleans of the shape of a row;
        or an integer mask of that shape, one number for each group, in which negative entries are left alone. Groups
        may overlap. `reliance.features` makes every channel, position, patch or window.""",
    "weights": """weights : array (n,), optional
        Weights of the rows' losses. As donors, all rows count equally.""",
    "replace": """replace : optional
        What a feature is replaced by; None: its values in other rows. ``"mean"`` or ``"zero"``; ``"noise"``: normal
        numbers with the mean and standard deviation of each column; values of a row, or of all rows, as an array like
        X; a function that makes these of all rows. Values that are given are written once, with intervals over the
        rows. ``rl.Donors(X_background, within=labels)``: other rows to borrow from, or only rows of the same label.""",
    "clusters": """clusters : array (n,), name of a column of X, Clusters or Blocks, optional
        Which rows belong together: patients, users, sites, images of one scene. Rows of a cluster may resemble each
        other in any way; intervals and tests then rest on the clusters. ``rl.Blocks()`` is for rows in an order, such
        as a time series. Values are the same with and without it, as any row lends to any other;
        ``rl.Clusters(labels, lend="other clusters")`` and ``rl.Blocks(lend="stretches")`` ask other questions.""",
    "rng": """rng : int, SeedSequence or Generator, optional
        A seed. The same seed gives the same donors on every backend and at every block size. A Generator is advanced
        by one number.""",
    "run": """run : Run, optional
        How the work is done: ``rl.Run(memory="512MB")`` bounds what may be allocated, see `Run`.""",
    "progress": """progress : bool or callable
        True shows a bar; a function is called as ``progress(done, total)``.""",
    "names": """names : sequence of str, optional
        Names of the columns.""",
    "pairs": """pairs : {"all", "halves"}, int or Draws
        Which donors a row borrows from. ``"all"``: every other row, exactly, with O(n) memory. ``"halves"``: rows are
        matched at random (``rng``), and the two of a pair borrow from each other; an odd last row is left out, with a
        warning. An integer, or ``rl.Draws(K, design=...)``: K donors.""",
    "route": """route : {"auto", "plain", "distinct", "trees", "linear", "additive", "pipeline", "kernel", ...}
        How all pairs are computed; the result is the same. ``"plain"``: the model is called for every pair.
        ``"distinct"``: once for donors with equal values, n m evaluations for m distinct values. ``"trees"``: read from
        the trees of an ensemble (scikit-learn, LightGBM, XGBoost, CatBoost), which cannot tell donors between two
        thresholds apart. ``"linear"``: in closed form, for linear models and squared error. ``"additive"``: by sums
        over few points, or by sorting, for models whose score is a sum over columns: generalised linear models,
        `reliance.models.Additive`. ``"pipeline"``: by exchanging transformed columns, for pipelines of scikit-learn
        whose steps treat columns apart; the last estimator may have a route of its own, as in ``"pipeline+linear"``.
        ``"kernel"``: from the centres of a kernel machine of scikit-learn. ``"first_layer"``: without the first product
        of a model that begins with an affine layer. ``"nodes"``: few values of a column in the place of all donors, for
        smooth models, to 1e-6 of the changes' size; never taken by itself, and refused where the loss is no smooth
        function of the value. ``"auto"``: for each feature the cheapest that applies; ``result.routes`` says which. A
        route that does not apply is an error.""",
    "fit": """fit : callable or scikit-learn estimator
        The algorithm: ``fit(X, y) -> model`` for any number of columns, on arrays of the kind of ``X``; the model is
        anything that the other methods take. An estimator is cloned for each fit.""",
    "cv": """cv : int, splitter, list of (train, test), or tuple (X_test, y_test)
        What to measure on: a number of random folds (with an equal share of each class if the loss is one of labels),
        those of an object with ``split(X, y)``, a list of pairs of row numbers, or a test set, arrays (m, p) and
        (m, ...). For a splitter that needs groups, pass its pairs, ``list(splitter.split(X, y, groups))``.""",
    "model_class": """model_class : LinearClass, KernelClass, DifferentiableClass, FiniteClass, or another class
        The models that are considered. Each class has its own loss.""",
    "epsilon": """epsilon : float
        How much worse than the reference a good model may be, at least 0: a share of the reference's risk, 0.05 for
        5%.""",
    "relative": """relative : bool
        False: epsilon is added to the reference's risk, in units of the loss of one row (the course notes add it to the
        sum of all losses).""",
    "reference": """reference : model or float, optional
        The model of the class that others are compared with, or a risk. None: the best model of the class.""",
    "keep": """keep : str or sequence of str
        ``"rows"`` keeps ``row_values`` (p, n), what each row contributes. ``"influence"`` keeps ``influence``, how far
        each row (or cluster) moves each estimate: ``interval(simultaneous=True)``, ``ranks()`` and differences of two
        results need it.""",
}


def public(function: Callable[P, R]) -> Callable[P, R]:
    """A public function: its docstring is complete, and a keyword that it does not have is answered with help.

    A docstring describes the parameters that are its own. Those that it leaves out are described by `PARAMETERS`, and
    all stand in the order of the signature.
    """
    parameters = inspect.signature(function).parameters
    function.__doc__ = _completed(function.__doc__, list(parameters))
    known = {name for name, one in parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    open_ended = len(known) < len(parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= known:
            _explain(function.__name__, [name for name in kwargs if name not in known], known, open_ended)
        with calls.keeping(kwargs.get("run")) as call:
            result = function(*args, **kwargs)
        # A part of the units is no result: what is done is in the folder.
        return result if call is None or call.part is None else call.status()  # type: ignore[return-value]

    return checked


_SECTION = "    Parameters\n    ----------\n"


def _completed(doc: str | None, names: list[str]) -> str | None:
    """A docstring whose Parameters have an entry for each name that is known."""
    if doc is None or _SECTION not in doc:  # python -OO
        return doc
    before, rest = doc.split(_SECTION, 1)
    own, mark, after = rest.partition("\n\n")
    entries: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", own):
        header = entry.strip().split("\n")[0].partition(" :")[0]
        # "X, y : arrays" is one entry, which stands where the first of its names does.
        entries |= dict.fromkeys((name.strip().lstrip("*") for name in header.split(",")), entry)
    wanted = [entries.get(name, "    " + PARAMETERS[name] if name in PARAMETERS else "") for name in names]
    return before + _SECTION + "\n".join(dict.fromkeys(filter(None, wanted))) + mark + after


def _explain(function: str, unknown: list[str], known: set[str], open_ended: bool) -> None:
    for name in unknown:
        if name in _FOREIGN:
            raise TypeError(f"{function}() has no parameter {shown(name)}: pass {_FOREIGN[name]}")
        if not open_ended:
            raise TypeError(f"{function}() has no parameter {shown(name)}: {closest(name, known)}")
