"""The sections that put an importance in its place: extrapolation, curves, and every good linear model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from reliance._core import calls, streams
from reliance._core.run import Run, only, resolved
from reliance._core.words import short
from reliance.data.checked_arrays import as_array
from reliance.data.passed import FeaturesLike
from reliance.methods.extrapolation import extrapolation_check
from reliance.methods.replacement import model_reliance
from reliance.rashomon.model_classes import LinearClass
from reliance.rashomon.reliance import model_class_reliance
from reliance.refit.splits import is_table, take
from reliance.report import figures, html, wording
from reliance.report.html import Html, element, join, number, paragraph
from reliance.report.measured import Part, known_importance
from reliance.report.question import DoesNotApply, Question
from reliance.results.base import Result
from reliance.results.curves import Curve
from reliance.results.importance import Importance

CURVES = 6  # features, the most important ones
EPSILON = 0.05
_LEAST_BUDGET = 200_000  # rows that the model may be called with for curves, if the importance took fewer
_FREE_ROUTES = frozenset({"trees", "linear", "additive", "unused"})  # all pairs without a model call for each
_FREE_ROWS = 5000
_MANY_COLUMNS = 20


class _Named(TypedDict):
    features: FeaturesLike
    names: Sequence[str] | None
    rng: int


def extrapolation(question: Question, before: Mapping[str, Result]) -> Part:
    """Whether replaced rows are like real ones."""
    options: _Named = {"features": question.features, "names": question.names, "rng": question.key}
    found = extrapolation_check(question.X, **options)
    result = found.ranked()
    columns = html.columns(
        [
            (
                "Distance ratio",
                "Mean distance to the nearest real row: replaced rows over real ones.",
                result.values,
            )
        ]
    )
    assert result.outside is not None
    share = [wording.percent(v) for v in result.outside]
    means = "Share of replaced rows that lie farther off than 95% of the rows do; 5% is normal."
    columns.append(html.Column("Far off", means, list(result.outside), share))
    width = question.rows.flat.shape[1]
    lead = [
        "Importance asks the model about rows with one value from elsewhere. Where features depend on each other such "
        "rows may be unlike any real row (2 metres tall and 30 kg), and the model's answer is a guess. "
        f"A distance ratio of 1 is what independent features have; above {result.limit:g} is a reason for care."
    ]
    if width > _MANY_COLUMNS:
        lead.append(
            f" With {width} columns all rows are far from each other, so this check sees little: "
            "rl.extrapolation_check(X, method='classifier') sees more, and takes longer."
        )
    picture = figures.figure(
        lambda ax: result.plot(ax=ax),
        "Bar chart of the distance ratio of each feature, largest first: "
        f"{wording.largest(result.names, result.values)}. All values are in the table below.",
        height=figures.by_feature(len(result.names)),
    )
    table = html.table("Distance of replaced rows from the data", wording.labels(result.names), columns)
    cautions: tuple[Html, ...] = ()
    if result.beyond:
        cautions = (
            join(
                [
                    "Replacing ",
                    wording.names(result.beyond),
                    " makes rows unlike the data, so these importances rest partly on extrapolation; the importance "
                    "given all other features stays closer to the data.",
                ]
            ),
        )
    call = wording.call("extrapolation_check", "X", options)
    return Part(found, join([paragraph(*lead), picture, table]), call, (), cautions)


# ---------------------------------------------------------------------------------------------------------------------
# Curves


def curves(question: Question, before: Mapping[str, Result]) -> Part:
    """How the mean prediction follows the most important features."""
    importance = known_importance(before)
    chosen = [name for name in question.most_important(importance, CURVES) if _is_single(question, name)]
    if not chosen:
        raise DoesNotApply("curves are of single columns of one array or table, and no such feature was measured")
    rows = _affordable(question, len(chosen))
    result = _measured(question, chosen, rows)
    # What the model's structure gives for nothing is taken from all rows.
    routes = {route.removeprefix("pipeline+") for route in result.routes}
    if rows < question.rows.n <= _FREE_ROWS and routes <= _FREE_ROUTES:
        rows = question.rows.n
        result = _measured(question, chosen, rows)
    assert result.curves is not None
    outputs = {curve.mean[0].size for curve in result.curves.values()}
    second = 1 if outputs == {2} else None  # of two classes, the second says all
    sample = (
        "all rows"
        if rows == question.rows.n
        else f"a random sample of {rows:,} of {question.rows.n:,} rows, to save model calls"
    )
    what = "the probability of the second class" if second else "the prediction"
    lead = paragraph(
        f"The mean of {what} if a feature had the same value in every row (partial dependence), from {sample}. "
        "Steep parts are where the value matters; a flat curve can hide effects that cancel out."
    )
    pictures = [
        figures.figure(
            lambda ax, name=name: result.plot("curve", ax=ax, feature=name, output=second),  # type: ignore[misc]
            _curve_words(name, result.curves[name], second),
            width=4.8,
            height=3.3,
        )
        for name in chosen
    ]
    options = {"pairs": "all", "features": chosen, "keep": "curves", **question.shared}
    arguments = "model, X, y" if rows == question.rows.n else "model, X_sample, y_sample"
    call = wording.call("model_reliance", arguments, options)
    return Part(result, join([lead, element("div", *pictures, class_="pair")]), call)


def _is_single(question: Question, name: str) -> bool:
    if question.rows.inputs is not None:
        return False
    return any(one.name == name and len(one.columns) == 1 for one in question.rows.features)


def _affordable(question: Question, features: int) -> int:
    """How many rows all pairs may have, so that curves cost no more model calls than the importances did."""
    n = question.rows.n
    budget = max(_LEAST_BUDGET, n * question.draws_per_row * len(question.rows.features))
    return min(n, max(10, math.isqrt(budget // features)))


def _measured(question: Question, chosen: list[str], rows: int) -> Importance:
    X, y = question.X, question.y
    if rows < question.rows.n:
        ids = np.sort(streams.ordering(question.key, question.rows.n, 0)[:rows])
        X = take(X if is_table(X) else as_array(X, "X"), ids)
        y = None if y is None else take(as_array(y, "y"), ids)
    options = {"features": question.only(chosen), "keep": "curves", **question.shared}
    # A metric of all rows needs every pair by itself; a curve needs no loss at all.
    found = model_reliance(question.model, X, y, pairs="all", compare="difference", **options)
    assert isinstance(found, Importance)
    return found


def _curve_words(name: str, curve: Curve, output: int | None) -> str:
    """What a curve looks like, for who does not see it."""
    mean = curve.mean.reshape((len(curve.mean), -1))
    shown = f"Partial dependence on {short(name)}: "
    if output is None and mean.shape[1] > 1:
        return f"{shown}one curve for each of {mean.shape[1]} outputs of the model."
    values, ends = mean[:, output or 0], curve.labels
    lowest, highest = int(np.argmin(values)), int(np.argmax(values))

    def at(place: int) -> str:
        return short(ends[place]) if ends is not None else number(float(curve.values[place]))

    return (
        f"{shown}lowest mean prediction {number(float(values[lowest]))} at {at(lowest)}, highest "
        f"{number(float(values[highest]))} at {at(highest)}."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Every good linear model


def linear_class(question: Question, before: Mapping[str, Result]) -> Part:
    """The range of reliance over all linear models that predict these rows well."""
    _check_regression(question, before)
    options: _Named = {"features": question.features, "names": question.names, "rng": question.key}
    y = question.y  # of rows that come with their labels there may be none
    # A class takes the memory alone: it has no blocks, workers or units to keep, and the call as a whole may.
    with only(Run(memory=resolved(question.run).memory)), calls.aside():
        result = model_class_reliance(LinearClass(), question.X, y, epsilon=EPSILON, **options)  # type: ignore[arg-type]
    shown = result._taken(np.argsort(-result.achieved_lower, kind="stable"))
    parts = [
        ("Least", "Loss with values from other rows over loss, for the model that relies least.", shown.lower),
        ("Most", "The same for the model that relies most.", shown.upper),
    ]
    importance, mine = known_importance(before), ""
    if importance is not None:
        own = dict(zip(importance.names, importance.replaced_risk / importance.base_risk, strict=True))
        parts.append(("This model", "The same for the model of this report.", np.array([own[k] for k in shown.names])))
        mine = f"; this model: {number(importance.base_risk)}"
    needed = [name for name, low in zip(shown.names, shown.lower, strict=True) if low > 1.0 + 1e-6]
    lead = paragraph(
        "Other models may predict as well in other ways. Of all linear models whose mean squared error on these rows "
        f"is within {EPSILON:.0%} of the best one's ({number(result.reference_risk)}{mine}), how "
        "little and how much does any rely on a feature? 1 means not at all."
    )
    picture = figures.figure(
        lambda ax: shown.plot(ax=ax),
        "For each feature a line from the least to the most that a good linear model relies on it. "
        "All values are in the table below.",
        height=figures.by_feature(len(shown.names)),
    )
    table = html.table("Reliance of good linear models", wording.labels(shown.names), html.columns(parts))
    findings: tuple[Html, ...] = ()
    if needed:
        findings = (join(["No good linear model does without ", wording.names(needed), "."]),)
    else:
        findings = (Html("There is no feature that every good linear model needs."),)
    call = wording.call("model_class_reliance", "rl.LinearClass(), X, y", {"epsilon": EPSILON, **options})
    return Part(result, join([lead, picture, table]), call, findings)


def _check_regression(question: Question, before: Mapping[str, Result]) -> None:
    """Whether linear models of these rows are a context for the importances."""
    rows, found = question.rows, known_importance(before)
    loss = question.loss_name if found is None else found.loss
    if loss != "squared_error" or rows.y is None or len(rows.y.shape) > 1:
        raise DoesNotApply("it is for regression: one number per row to predict, measured by squared error")
    if rows.coded or len(rows.shape) != 1:
        raise DoesNotApply("it is for tables of numbers, and some columns are not numbers")
    if rows.n <= rows.flat.shape[1] + 1:
        raise DoesNotApply(f"{rows.n} rows are too few to fit a linear model of {rows.flat.shape[1]} features")
