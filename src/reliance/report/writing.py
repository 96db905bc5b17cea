"""The report: sections are run, the page is written, and the results come back."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reliance._core.checks import warn
from reliance._core.progress import Progress, reporting
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance._core.words import listed, shown
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.methods.drawing import DEFAULT, Draws
from reliance.methods.splits import Split
from reliance.report import page, units, wording
from reliance.report.html import Html, element
from reliance.report.question import GivenLike, Question, asked, checked_path, checked_sections
from reliance.samplers.given import Given
from reliance.samplers.given import Variables as GivenVariables


@dataclass(frozen=True, eq=False)
class Report:
    """What `report` wrote, and the results that its page shows.

    Attributes
    ----------
    path : Path
        The page.
    results : mapping from sections to results
        ``results["importance"]`` is an `Importance`, ``"splits"`` a `SplitComparison`, ``"given"`` a
        `RelativeImportance`, ``"extrapolation"`` an `Extrapolation`, ``"curves"`` an `Importance` with curves, and
        ``"class"`` a `ClassReliance`.
    failed : mapping from sections to str
        Sections that could not be done, and why.
    left_out : mapping from sections to str
        Sections that do not apply to this model or these rows, and why.
    warnings : tuple of str
        Everything that was warned about.
    key : int
        Of the random numbers: ``rng=key`` repeats the report.
    """

    path: Path
    results: Mapping[str, Any]
    failed: Mapping[str, str]
    left_out: Mapping[str, str]
    warnings: tuple[str, ...]
    key: int

    def __getitem__(self, section: str) -> Any:
        """The result of a section."""
        if section not in self.results:
            why = self.failed.get(section) or self.left_out.get(section)
            reason = f"could not be made: {why}" if why else f"is none of {listed(self.results, 9)}"
            raise KeyError(f"section {shown(section)} {reason}")
        return self.results[section]

    def __repr__(self) -> str:
        parts = [f"Report in {str(self.path)!r}: {', '.join(self.results)}"]
        parts += [f"failed: {', '.join(self.failed)}"] if self.failed else []
        parts += [wording.count(len(self.warnings), "warning")] if self.warnings else []
        return "; ".join(parts)

    def _repr_html_(self) -> str:
        """The page itself, in a frame of a notebook; its own scripts may run there, and nothing else."""
        try:
            source = self.path.read_text(encoding="utf-8")
        except OSError:  # it was moved
            return element("p", repr(self))
        frame = {"title": "Report", "width": "100%", "height": 640, "sandbox": "allow-scripts", "loading": "lazy"}
        return element("iframe", srcdoc=source, **frame)


@public
def report(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    path: str | os.PathLike[str] = "audit.html",
    train: Split | None = None,
    given: GivenVariables | Mapping[str, GivenVariables] | Given | None = None,
    sections: Sequence[str] | None = None,
    draws: int | Draws = DEFAULT,
    loss: LossLike | None = None,
    features: FeaturesLike = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    names: Sequence[str] | None = None,
) -> Report:
    """Write a page about what a model relies on: figures, tables, and how sure they are, in one HTML file.

    The file needs no network, and no JavaScript to be read. It begins with a summary in words. Each section runs by
    itself: one that fails says why on the page, and the others are there.

    Parameters
    ----------
    X : array (n, ...), table, or tuple or dict of arrays
        Rows that the model was not fitted to: NumPy, CuPy, JAX or torch, where the work happens. A table of pandas,
        polars or pyarrow reaches the model as such a table. Several inputs are passed as ``model(*X)`` or
        ``model(**X)``.
    path : str or path
        The file to write, which ends in ``.html``. One of this name is replaced.
    train : tuple (X, y) or (X, y, weights), optional
        The rows that the model was fitted to: importances on them are compared with those on ``X``.
    given : list, "rest", mapping or Given, optional
        For the section "given": names or indices of features, or several such sets by name, that are known when a
        feature is replaced. By default ``"rest"``, all other features. See `relative_importance`.
    sections : sequence of str, optional
        Which sections the page has, of "importance" (`permutation_importance`), "splits" (`compare_splits`; needs
        ``train``), "given" (`relative_importance` of the 10 most important features), "extrapolation"
        (`extrapolation_check`), "curves" (partial dependence on the 6 most important features) and "class"
        (`model_class_reliance` of linear models, for regression). By default all that apply.
    draws : int or Draws
        How many times each row is replaced.
    loss : str, callable or Metric, optional
        One loss, by default the one that fits the model: log loss for a classifier with probabilities, zero-one for one
        without, squared error for a regressor or a function of numbers. Names and functions are those of
        `permutation_importance`.
    progress : bool or callable
        Show a bar, or call ``progress(done, total)``, counting sections.

    Returns
    -------
    Report
        Its ``path``, and the results that the page shows, by section.

    Raises
    ------
    Exception
        An argument that is wrong is an error at once. If every section fails, nothing is written and the error of the
        first is raised.

    Notes
    -----
    What is warned about during the work stands on the page, and is warned about when the page is written. Curves come
    from all pairs of rows where these are few or the model's structure is known (trees, linear models), otherwise from
    a sample of the rows, so that they take no more model calls than the importances; the page says which.

    Names and values are escaped: a feature called ``<b>`` is shown as that.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X[:, 0] + 0.5 * X[:, 1]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder) / "audit.html"
    ...     found = rl.report(lambda X: X[:, 0], X, y, path=page, sections=["importance"], rng=0)
    ...     page.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    >>> found["importance"].ranked().names[0]
    'x0'
    """
    target = checked_path(path)
    chosen = checked_sections(sections, list(units.UNITS), train)
    question = asked(model, X, y, train, given, draws, loss, features, names, rng, run)
    with reporting(progress, len(chosen), "sections") as advance:
        every = units.run(question, chosen, advance)
    outcomes = [one for one in every if units.applies(one)]
    if not any(one.part is not None for one in every):
        raise next(one.error for one in every if one.error is not None)
    left_out = {one.name: str(one.error) for one in every if not units.applies(one)}
    titled = {units.UNITS[name].title: why for name, why in left_out.items()}
    _write(target, page.page(question, outcomes, _call(question, target, sections, given), titled))
    said = tuple(dict.fromkeys(message for one in every for message in one.warnings))
    for message in said:  # whoever called hears them, too
        warn(message)
    return Report(
        path=target,
        results=MappingProxyType({one.name: one.part.result for one in outcomes if one.part is not None}),
        failed=MappingProxyType({one.name: one.failed for one in outcomes if one.failed}),
        left_out=MappingProxyType(left_out),
        warnings=said,
        key=question.key,
    )


def _call(question: Question, path: Path, sections: Sequence[str] | None, given: GivenLike) -> str:
    options = {
        "path": path.name,
        "train": None if question.train is None else Html("(X_train, y_train)"),
        "given": given,
        "sections": sections,
        "draws": question.draws,
        "loss": question.loss,
        "features": question.features,
        "rng": question.key,
        "run": question.run,
        "names": question.names,
    }
    return wording.call("report", "model, X, y", options)


def _write(path: Path, text: str) -> None:
    """The page is there as a whole or not at all: if anything fails, one of the same name stays as it was."""
    path = Path(os.path.realpath(path))
    new = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
