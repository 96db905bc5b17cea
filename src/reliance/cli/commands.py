"""The two commands: an answer on the standard output, all else on the other, errors in words."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from reliance.cli import models, tables
from reliance.cli.models import Loaded
from reliance.cli.tables import Data
from reliance.methods.drawing import DEFAULT
from reliance.methods.replacement import permutation_importance
from reliance.report import report

_WRONG = 2  # what argparse exits with
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the code to exit with."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = _warn
        try:
            answer = options.command(options)
        except KeyboardInterrupt:
            _say("interrupted")
            return _INTERRUPTED
        except Exception as error:  # whatever a model or a file does
            if options.traceback:
                raise
            expected = isinstance(error, ValueError | TypeError | ImportError | OSError)
            _say(f"error: {error}" if expected else f"error: {type(error).__name__}: {error}")
            return _WRONG
    sys.stdout.write(f"{answer}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliance", description="What does a model rely on?")
    commands = parser.add_subparsers(required=True, metavar="report | importance")
    for name, command, does in (
        ("report", _report, "write a page with figures, tables and a summary"),
        ("importance", _importance, "print the permutation importance of each feature"),
    ):
        one = commands.add_parser(name, help=does, description=f"{does.capitalize()}.")
        one.set_defaults(command=command)
        _add_shared(one)
        if name == "report":
            _add_report(one)
        else:
            one.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _add_shared(one: argparse.ArgumentParser) -> None:
    one.add_argument("model", metavar="MODEL", help="an ONNX, LightGBM or XGBoost file, or module:object")
    one.add_argument("data", metavar="DATA", help="rows the model was not fitted to: .csv, .parquet, .arrow, .feather")
    one.add_argument("--target", required=True, metavar="COL", help="the column that the model predicts")
    one.add_argument("--ignore", action="append", metavar="A,B", help="columns that are no features, such as an id")
    one.add_argument("--features", action="append", metavar="A,B", help="measure these columns only")
    one.add_argument("--loss", help="how wrong a prediction is; by default what fits the model")
    one.add_argument("--draws", type=int, default=DEFAULT, help=f"how many times each row is replaced ({DEFAULT})")
    one.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    one.add_argument("--trust", action="store_true", help="load a pickle, joblib or torch file, which can run any code")
    one.add_argument("--traceback", action="store_true", help="show where an error came from")


def _add_report(one: argparse.ArgumentParser) -> None:
    one.add_argument("-o", "--output", default="audit.html", metavar="FILE", help="the page to write (audit.html)")
    one.add_argument("--train", metavar="FILE", help="the rows the model was fitted to, to compare with")
    one.add_argument("--given", action="append", metavar="A,B", help="features that are known; by default all others")
    one.add_argument("--sections", metavar="A,B", help="of importance, splits, given, extrapolation, curves, class")


def _say(words: str) -> None:
    sys.stderr.write(f"python -m reliance: {words}\n")


def _warn(message: Warning | str, *place: object, **more: object) -> None:
    """A warning without the line of ours that it came from."""
    _say(f"warning: {message}")


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def _report(options: argparse.Namespace) -> str:
    loaded, data = _asked(options)
    train = None
    if options.train is not None:
        fitted = _data(options.train, options, loaded)
        train = (fitted.X, fitted.y)
    given: Any = options.given
    if given is not None:
        given = "rest" if given == ["rest"] else tables.column_list(given, data.names, "--given")
    found = report(
        loaded.model,
        data.X,
        data.y,
        path=options.output,
        train=train,
        given=given,
        sections=None if options.sections is None else options.sections.split(","),
        progress=sys.stderr.isatty(),
        **_shared(options, data),
    )
    for section, why in found.failed.items():
        _say(f"warning: the section {section!r} could not be made: {why}")
    return str(found.path)


def _importance(options: argparse.Namespace) -> str:
    loaded, data = _asked(options)
    progress = sys.stderr.isatty()
    found = permutation_importance(loaded.model, data.X, data.y, progress=progress, **_shared(options, data)).ranked()
    return json.dumps(found.to_dict(), allow_nan=False) if options.json else repr(found)


def _asked(options: argparse.Namespace) -> tuple[Loaded, Data]:
    loaded = models.load(options.model, options.trust)
    return loaded, _data(options.data, options, loaded)


def _data(path: str, options: argparse.Namespace, loaded: Loaded) -> Data:
    return tables.divided(tables.read(path), options.target, options.ignore, loaded)


def _shared(options: argparse.Namespace, data: Data) -> dict[str, Any]:
    return {
        "features": tables.column_list(options.features, data.names, "--features"),
        "loss": options.loss,
        "draws": options.draws,
        "rng": options.seed,
        "names": data.names,
    }
