"""The sections about the model on these rows: importance, training against test, and given other features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance import inference
from reliance._core import arrays
from reliance.methods.conditional import relative_importance
from reliance.methods.replacement import permutation_importance
from reliance.methods.splits import compare_splits
from reliance.plots.wording import loss_in_words
from reliance.report import figures, html, wording
from reliance.report.html import Html, join, number, paragraph
from reliance.report.question import REST, Question
from reliance.report.wording import ALPHA, LEVEL
from reliance.results.base import Result
from reliance.results.comparisons import RelativeImportance
from reliance.results.importance import Importance

Floats = NDArray[np.float64]
# How a feature is drawn given others, by the route that its result names.
_SAMPLED = {
    "gaussian": "what a line through the given columns says, plus the rest of another row,",
    "residual": "what a regression on the given columns says, plus the rest of another row,",
    "leaves": "the value of a row in the same leaf of a tree",
    "knn": "the value of a near row",
    "marginal": "the value of any row",
}
GIVEN_FEATURES = 10  # the most important ones; each is measured again for every set


@dataclass(frozen=True, eq=False)
class Part:
    """What a section found: the result, its part of the page, sentences for the summary, and how to repeat it."""

    result: Result
    body: Html
    call: str
    findings: tuple[Html, ...] = ()
    cautions: tuple[Html, ...] = ()


def known_importance(before: Mapping[str, Result]) -> Importance | None:
    """What the section of that name has found, if it was made."""
    found = before.get("importance")
    return found if isinstance(found, Importance) else None


def importance(question: Question, before: Mapping[str, Result]) -> Part:
    """How much worse the model predicts with the values of a feature taken from other rows."""
    options = {"draws": question.draws, "features": question.features, **question.shared}
    found = permutation_importance(question.model, question.X, question.y, **options)
    assert isinstance(found, Importance)
    result = found.ranked()
    low, high = _interval(result).T
    tests = _p_values(result)
    loss = wording.loss(result)
    base = result.base_risk
    unit = loss_in_words(result.loss)
    columns = html.columns(
        [
            ("Importance", f"How much the {loss} rises when the feature's values come from other rows.", result.values),
            ("From", "Lower end of the 95% interval for new rows from the same source.", low),
            ("To", "Upper end of that interval.", high),
        ]
    )
    if base > 0:
        share = result.values / base
        means = f"The importance as a share of the {loss} on the rows as they are, {number(base)}."
        columns.append(html.Column("Relative", means, list(share), [wording.percent(v) for v in share]))
    if tests is not None:
        means = "Chance of so large an importance if the feature had none; adjusted for several tests (Holm)."
        columns.append(html.Column("p", means, list(tests), [html.p_value(p) for p in tests]))
    picture = figures.figure(
        lambda ax: result.plot(ax=ax),
        f"Bar chart of the increase in {unit} for each feature with 95% intervals, largest first: "
        f"{wording.largest(result.names, result.values)}. All values are in the table below.",
        height=figures.by_feature(len(result.names)),
    )
    table = html.table(f"Permutation importance: increase in {unit}", wording.labels(result.names), columns)
    lead = paragraph(
        f"Each feature in turn gets its values from other rows, {wording.count(result.draws_per_row, 'time')} per row, "
        f"and the model predicts again. The more its {loss} rises, the more the model relies on the feature."
    )
    return Part(
        found,
        join([lead, picture, _pixels(question, found), table]),
        wording.call("permutation_importance", "model, X, y", _said(question, options)),
        _importance_findings(result, low, high, tests),
        _importance_cautions(result),
    )


def _pixels(question: Question, result: Importance) -> Html | None:
    """Where in a picture the features are, if rows are pictures."""
    if len(question.rows.shape) != 2:
        return None
    if question.features is None:
        where: dict[str, object] = {"shape": question.rows.shape, "names": question.names}
    elif arrays.is_array(question.features) and len(question.features.shape) == 2:
        where = {"mask": question.features}
    else:
        return None
    return figures.figure(
        lambda ax: result.plot("image", ax=ax, **where),
        "The same importances as colours, each where the feature is in the picture: blue where the loss rises.",
        height=4.6,
    )


def _importance_findings(result: Importance, low: Floats, high: Floats, tests: Floats | None) -> tuple[Html, ...]:
    loss, base = wording.loss(result), result.base_risk
    names, p = result.names, len(result.names)
    found = []
    if result.values[0] > 0:
        more = f", {wording.percent(result.values[0] / base)} more" if base > 0 else ""
        found.append(
            join(
                [
                    "The model relies most on ",
                    wording.name(names[0]),
                    f": with values from other rows its {loss} rises from {number(base)} to ",
                    f"{number(result.replaced_risk[0])}{more} "
                    f"(by {wording.estimate(result.values[0], low[0], high[0])}).",
                ]
            )
        )
    if tests is not None:
        clear = [name for name, one in zip(names, tests, strict=True) if one < ALPHA]
        rest = [name for name in names if name not in set(clear)]
        if clear:
            found.append(
                join(
                    [
                        f"It clearly relies on {len(clear)} of {wording.count(p, 'feature')}: ",
                        wording.names(clear),
                        f" (p below {ALPHA:g} after adjusting for {wording.count(p, 'test')}).",
                    ]
                )
            )
        if rest:
            what = "it does not matter" if len(rest) == 1 else "they do not matter"
            many = wording.count(len(rest), "feature")
            found.append(join([f"For {many} the data cannot rule out that {what}: ", wording.names(rest), "."]))
    return tuple(found)


def _importance_cautions(result: Importance) -> tuple[Html, ...]:
    harm = [name for name, high in zip(result.names, _interval(result)[:, 1], strict=True) if high < 0]
    if not harm:
        return ()
    return (join(["The model predicts better without the own values of ", wording.names(harm), "."]),)


def splits(question: Question, before: Mapping[str, Result]) -> Part:
    """What the model uses on its training rows against what helps on these."""
    assert question.train is not None
    options = {"pairs": question.draws, "compare": "difference", "features": question.features, **question.shared}
    result = compare_splits(question.model, train=question.train, test=(question.X, question.y), **options)
    order = np.argsort(-result.on_test.values, kind="stable")
    shown = result._taken(order)
    low, high = _interval(shown).T
    columns = html.columns(
        [
            ("Training", "Importance on the training rows.", shown.on_train.values),
            ("Test", "Importance on the test rows.", shown.on_test.values),
            ("Difference", "Training less test.", shown.values),
            ("From", "Lower end of the 95% interval of the difference.", low),
            ("To", "Upper end of that interval.", high),
        ]
    )
    tests = _p_values(shown)
    over: list[str] = []
    if tests is not None:
        means = "For a larger importance on the training rows; adjusted for several tests (Holm)."
        columns.append(html.Column("p", means, list(tests), [html.p_value(p) for p in tests]))
        over = [name for name, p in zip(shown.names, tests, strict=True) if p < ALPHA]
    loss = wording.loss(result.on_test)
    train, test = number(result.on_train.base_risk), number(result.on_test.base_risk)
    lead = paragraph(
        f"On its {result.on_train.n:,} training rows the model's {loss} is {train}, on the {result.on_test.n:,} test "
        f"rows {test}. A feature that matters much more in training is one the model overfits with."
    )
    picture = figures.figure(
        lambda ax: shown.plot("bar", ax=ax),
        "Two bars for each feature, its importance on training and on test rows, with 95% intervals. "
        "All values are in the table below.",
        height=figures.by_feature(len(shown.names), 2),
    )
    table = html.table("Importance on training and test rows", wording.labels(shown.names), columns)
    findings = (Html(html.text(f"The model's {loss} is {train} on the training rows and {test} on the test rows.")),)
    cautions: tuple[Html, ...] = ()
    if over:
        cautions = (
            join(["The model overfits with ", wording.names(over), ": more important in training than on test rows."]),
        )
    return Part(
        result,
        join([lead, picture, table]),
        wording.call("compare_splits", "model, train=(X_train, y_train), test=(X, y)", _said(question, options)),
        findings,
        cautions,
    )


def given(question: Question, before: Mapping[str, Result]) -> Part:
    """What is left of an importance once other features are known."""
    chosen = question.most_important(known_importance(before), GIVEN_FEATURES)
    options = {"draws": question.draws, "features": question.only(chosen), **question.shared}
    result, why = _relative(question, options)
    nothing, *sets = list(result)
    some = ""
    if len(chosen) < len(question.rows.features):
        some = f" Measured for the {len(chosen)} most important of {len(question.rows.features)} features."
    lead = paragraph(
        "Features that go together share what they tell the model. Here a feature gets values that fit what is given: "
        "what is left of its importance is what it alone contributes." + some
    )
    picture = figures.figure(
        lambda ax: result.plot(ax=ax),
        f"For each feature {len(sets) + 1} bars: its importance given {', given '.join([nothing, *sets])}, with 95% "
        "intervals. All values are in the table below.",
        height=figures.by_feature(len(chosen), len(sets) + 1),
    )
    tables, findings = [], []
    for one in sets:
        tables += [_change_table(result, nothing, one), _drawn(result[one], why)]
        findings += _change_findings(result, nothing, one)
    call = wording.call(
        "relative_importance",
        "model, X, y",
        {"given": Html(repr(dict(question.given.variables))), **_said(question, options)},  # type: ignore[arg-type]
    )
    return Part(result, join([lead, picture, *tables]), call, tuple(findings))


def _relative(question: Question, options: Mapping[str, Any]) -> tuple[RelativeImportance, str]:
    """By the default sampler; where its line cannot be fitted and nobody asked for it, by the leaves of trees."""
    why = ""
    try:
        found = relative_importance(question.model, question.X, question.y, given=question.given, **options)
    except ValueError as error:  # columns that depend on each other, or more of them than rows
        if question.chose_sampler:
            raise
        leaves = dataclasses.replace(question.given, sampler="leaves")
        try:
            found = relative_importance(question.model, question.X, question.y, given=leaves, **options)
        except Exception:
            raise error from None  # what is wrong with both was wrong before
        why = f" The line that is the default could not be fitted: {error}."
    assert isinstance(found, RelativeImportance)
    return found, why


def _drawn(result: Importance, why: str) -> Html:
    """How values that fit what is given were drawn, for which features."""
    by_route: dict[str, list[str]] = {}
    for feature, route in zip(result.names, result.routes, strict=True):
        by_route.setdefault(route, []).append(feature)
    parts = [join([_SAMPLED.get(route, route), " for ", wording.names(few)]) for route, few in by_route.items()]
    return paragraph("How values were drawn: ", join(parts, "; "), ".", why, class_="small")


def _change_table(result: RelativeImportance, nothing: str, one: str) -> Html:
    delta = result.delta(nothing, one)
    low, high = _interval(delta).T
    tests = delta.test().p_adjusted
    columns = html.columns(
        [
            (f"Given {nothing}", "Importance when values come from any other row.", result[nothing].values),
            (f"Given {one}", f"Importance when values fit {one}.", result[one].values),
            ("Change", f"How much of the importance is already in {one}: the first less the second.", delta.values),
            ("From", "Lower end of the 95% interval of the change.", low),
            ("To", "Upper end of that interval.", high),
        ]
    )
    means = "For any change; adjusted for several tests (Holm)."
    columns.append(html.Column("p", means, list(tests), [html.p_value(p) for p in tests]))
    return html.table(f"Importance given {one}", wording.labels(delta.names), columns)


def _change_findings(result: RelativeImportance, nothing: str, one: str) -> list[Html]:
    """How much of the most important feature's importance is left."""
    first, second = result[nothing].values, result[one].values
    top = int(np.argmax(first))
    if not first[top] > 0:
        return []
    left = max(second[top], 0.0) / first[top]
    return [
        join(
            [
                f"Once {one} {'are' if one == REST or ', ' in one else 'is'} known, ",
                wording.percent(left),
                " of the importance of ",
                wording.name(result[nothing].names[top]),
                f" is left ({' becomes '.join(html.numbers([first[top], second[top]]))}).",
            ]
        )
    ]


# ---------------------------------------------------------------------------------------------------------------------
# What sections share


def _interval(result: Any) -> Floats:
    """Intervals where they are known; what there is to warn about is warned about."""
    known = inference.known_interval(result, LEVEL)
    if np.isfinite(known).any():
        result.interval(LEVEL)
    return known


def _p_values(result: Any) -> Floats | None:
    """Adjusted p-values; None where no test is known."""
    if np.isnan(result.std_error).all():
        return None
    return np.asarray(result.test().p_adjusted)


def _said(question: Question, options: Mapping[str, object]) -> dict[str, object]:
    """Options as they stand in a call: names of features in place of positions."""
    said = dict(options)
    features = said.get("features")
    if isinstance(features, dict) and question.features is None:
        said["features"] = list(features)
    return said
