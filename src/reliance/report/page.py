"""The whole page, from what the sections found."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from reliance._core.words import shown
from reliance.report import wording
from reliance.report.assets import SCRIPT, STYLE
from reliance.report.html import Html, bullets, element, join, number, paragraph
from reliance.report.question import Question
from reliance.report.units import Outcome
from reliance.results.importance import Importance

# Packages whose versions matter if they took part, and the modules by which that is seen.
_PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "array-api-compat": "array_api_compat",
    "matplotlib": "matplotlib",
    "narwhals": "narwhals",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "scikit-learn": "sklearn",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "xgboost-cpu": "xgboost",
    "catboost": "catboost",
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    "jax": "jax",
    "keras": "keras",
}


def page(question: Question, outcomes: Sequence[Outcome], call: str, left_out: Mapping[str, str]) -> str:
    """The HTML of a report."""
    title = "What does the model rely on?"
    parts = [_section(outcome) for outcome in outcomes]
    links = [("summary", "Summary"), *((outcome.name, outcome.brief) for outcome in outcomes)]
    links += [("warnings", "Warnings"), ("repeat", "Repeat")]
    contents = [element("a", words, href=f"#{name}") for name, words in links]
    body = element(
        "body",
        element("a", "To the summary", href="#summary", class_="skip"),
        element("header", element("h1", title), paragraph(_described(question, outcomes), class_="meta")),
        element("nav", bullets(contents), aria_label="Contents"),
        element(
            "main",
            _summary(question, outcomes),
            *parts,
            _warnings(outcomes),
            _repeat(question, outcomes, call, left_out),
        ),
        element("footer", _made()),
        element("script", Html(SCRIPT)),
    )
    return f"<!doctype html>\n{element('html', _head(f'{title} {question.title}'), body, lang='en')}\n"


def _head(title: str) -> Html:
    policy = f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    return element(
        "head",
        element("meta", charset="utf-8"),
        # Nothing is loaded, and no script runs but the page's own, whatever names and values hold.
        element("meta", http_equiv="Content-Security-Policy", content=policy + "base-uri 'none'; form-action 'none'"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"reliance {_version('reliance')}"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(STYLE)),
    )


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# ---------------------------------------------------------------------------------------------------------------------
# Parts of the page


def _described(question: Question, outcomes: Sequence[Outcome]) -> str:
    rows = question.rows
    words = [question.title, wording.count(rows.n, "row"), wording.count(len(rows.features), "feature")]
    if question.train is not None:
        words.append(f"{wording.count(len(question.train[0]), 'training row')}")
    found = _importance(outcomes)
    if found is not None:
        words.append(wording.loss(found))
    return " · ".join(words)


def _importance(outcomes: Sequence[Outcome]) -> Importance | None:
    found = next((one.part.result for one in outcomes if one.name == "importance" and one.part is not None), None)
    return found if isinstance(found, Importance) else None


def _summary(question: Question, outcomes: Sequence[Outcome]) -> Html:
    findings = [finding for one in outcomes if one.part is not None for finding in one.part.findings]
    cautions: list[Html] = [caution for one in outcomes if one.part is not None for caution in one.part.cautions]
    failed = [one.title for one in outcomes if one.failed]
    cautions += [join(["The part “", title, "” could not be done; it says why."]) for title in failed]
    many = len(_messages(outcomes))
    if many:
        cautions.append(join([element("a", wording.count(many, "warning"), href="#warnings"), " came up."]))
    found = _importance(outcomes)
    return element(
        "section",
        element("h2", "Summary"),
        bullets(findings),
        *([element("h3", "How sure is this?"), *_sureness(found)] if found is not None else []),
        *([element("h3", "Read with care"), bullets(cautions)] if cautions else []),
        id="summary",
        class_="summary",
    )


def _sureness(result: Importance) -> list[Html]:
    loss = wording.loss(result)
    why = f" ({result.why_loss})" if result.why_loss else ""
    measured = (
        f"Measured on {wording.count(result.n, 'row')} by the {loss}{why}, which is {number(result.base_risk)} on "
        "the rows as they are."
    )
    if np.isnan(result.std_error).all():
        return [paragraph(f"{measured} For this loss no interval is known: the values have an error of unknown size.")]
    sure = (
        " A 95% interval says where the importance would lie on new rows from the same source, for this fitted model; "
        "it does not say what another training run would have found."
    )
    shares = result.monte_carlo_share[np.isfinite(result.monte_carlo_share) & (result.std_error > 0)]
    draws = ""
    if shares.size:
        most = float(shares.max())
        remedy = (
            "only more rows would narrow the intervals much" if most < 0.2 else "more draws would narrow the intervals"
        )
        draws = f" At most {wording.percent(most)} of the variance comes from the random draws: {remedy}."
    return [paragraph(measured + sure + draws)]


def _section(outcome: Outcome) -> Html:
    heading = element("h2", outcome.title)
    if outcome.part is None:
        body = element("div", paragraph(element("b", "This part could not be done. "), outcome.failed), class_="note")
    else:
        body = outcome.part.body
    return element("section", heading, body, id=outcome.name)


def _messages(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Each warning once, with the part that it first came up in."""
    found: dict[str, str] = {}
    for one in outcomes:
        for warning in one.warnings:
            found.setdefault(warning, one.title)
    return [(title, message) for message, title in found.items()]


def _warnings(outcomes: Sequence[Outcome]) -> Html:
    items = [join([element("b", title), ": ", message]) for title, message in _messages(outcomes)]
    body = bullets(items) or paragraph("None came up.")
    return element("section", element("h2", "Warnings"), body, id="warnings")


def _repeat(question: Question, outcomes: Sequence[Outcome], call: str, left_out: Mapping[str, str]) -> Html:
    calls = [one.part.call for one in outcomes if one.part is not None]
    absent = [join([element("b", title), ": ", why]) for title, why in left_out.items()]
    versions = {"Python": platform.python_version(), "reliance": _version("reliance"), **_versions()}
    rows = [element("tr", element("th", name, scope="row"), element("td", found)) for name, found in versions.items()]
    head = element("tr", element("th", "Package", scope="col"), element("th", "Version", scope="col"))
    parts = [
        element("h2", "How to repeat this"),
        paragraph(
            "The same call with the same rows and the same key gives the same numbers. ",
            f"The key of the random numbers is {question.key}: pass it as rng.",
        ),
        element("pre", element("code", call)),
        paragraph("The parts by themselves, as results to compute with:"),
        element("pre", element("code", "\n".join(calls))) if calls else None,
        *([element("h3", "Left out"), bullets(absent)] if absent else []),
        element("h3", "Model and versions"),
        paragraph("Model: ", element("code", _model(question)), class_="small"),
        element("table", element("thead", head), element("tbody", *rows), class_="plain"),
    ]
    return element("section", *parts, id="repeat")


def _model(question: Question) -> str:
    """The model's own words, without addresses, which are others each time."""
    if callable(question.model) and hasattr(question.model, "__qualname__"):
        return f"{getattr(question.model, '__module__', '')}.{question.model.__qualname__}".lstrip(".")
    return re.sub(r" at 0x[0-9a-fA-F]+", "", shown(question.model, 300))


def _made() -> str:
    now = f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC"
    return f"Made with reliance {_version('reliance')} on {now}. This file needs no network."


def _versions() -> dict[str, str]:
    loaded = {package for package, module in _PACKAGES.items() if module in sys.modules}
    return {package: found for package in _PACKAGES if package in loaded and (found := _version(package))}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
