"""What a report is asked: the model and rows, checked before any work, in one value."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from reliance._core import calls
from reliance._core.checks import check_draws
from reliance._core.run import Run, resolved
from reliance._core.streams import RandomState, resolve_key
from reliance._core.words import listed, short, shown
from reliance.data import rows as data
from reliance.data.passed import DataLike, FeaturesLike, LossLike, ModelLike
from reliance.data.rows import Rows
from reliance.losses.functions import resolve_all
from reliance.methods.drawing import Draws
from reliance.methods.growth import check_no_end
from reliance.methods.splits import Split
from reliance.models.calling import name_of
from reliance.models.default_losses import default_loss
from reliance.results.importance import Importance
from reliance.samplers import variables
from reliance.samplers.given import Given, Variables, as_given

GivenLike: TypeAlias = Variables | Mapping[str, Variables] | Given | None

NOTHING, REST = "nothing", "all other features"


class DoesNotApply(ValueError):
    """A section that has nothing to say about this model or these rows, and why."""


@dataclass(frozen=True, eq=False)
class Question:
    """What all sections know."""

    model: ModelLike
    X: DataLike
    y: DataLike | None
    train: Split | None
    given: Given
    draws: int | Draws
    loss: LossLike | None
    features: FeaturesLike
    names: Sequence[str] | None
    key: int
    run: Run | None
    rows: Rows
    chose_sampler: bool

    @property
    def shared(self) -> dict[str, Any]:
        """The keywords that most methods take."""
        return {"loss": self.loss, "names": self.names, "rng": self.key, "run": self.run}

    @property
    def title(self) -> str:
        """What the model is, in a few words."""
        steps = getattr(self.model, "steps", None)
        if isinstance(steps, list) and steps and all(isinstance(step, tuple) for step in steps):
            return short(" + ".join(name_of(step[-1]) for step in steps), 80)
        name = short(name_of(self.model), 80)
        return "a function" if name == "<lambda>" else name

    @property
    def draws_per_row(self) -> int:
        return self.draws.count if isinstance(self.draws, Draws) else self.draws

    @property
    def loss_name(self) -> str:
        """Of the loss that is taken."""
        if self.loss is None:
            return default_loss(self.model, self.rows.y).name
        return resolve_all(self.loss)[0].name

    def most_important(self, importance: Importance | None, most: int) -> list[str]:
        """Names of the features with the largest importance; the first ones if it is not known."""
        if importance is None:
            return [feature.name for feature in self.rows.features[:most]]
        return list(importance.ranked().names[:most])

    def only(self, names: Sequence[str]) -> FeaturesLike:
        """Some of the features, as the argument ``features`` takes them."""
        if self.rows.inputs is not None:  # their pieces have no positions
            return self.features
        places = {feature.name: feature.columns for feature in self.rows.features}
        return {name: places[name] for name in names}


def asked(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None,
    train: Split | None,
    given: GivenLike,
    draws: int | Draws,
    loss: LossLike | None,
    features: FeaturesLike,
    names: Sequence[str] | None,
    rng: RandomState,
    run: Run | None,
) -> Question:
    """The question, checked: what is wrong with an argument is said before the work begins."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("report draws with matplotlib, which is not installed: pip install matplotlib")
    _check_run(run)
    if isinstance(loss, list | tuple):
        raise ValueError(f"loss={shown(loss)} is a list: a report is about one loss, so pass one")
    if loss is not None:
        resolve_all(loss)
    if train is not None and (not isinstance(train, tuple | list) or not 2 <= len(train) <= 3):
        what = f"{len(train)} entries" if isinstance(train, tuple | list) else type(train).__name__
        raise TypeError(f"train must be a tuple (X, y) or (X, y, weights), got {what}")
    rows = data.read(X, y, features=features, names=names)
    return Question(
        model=model,
        X=X,
        y=y,
        train=train if train is None or isinstance(train, tuple) else tuple(train),
        given=_sets(given, rows),
        draws=draws if isinstance(draws, Draws) else check_draws(draws),
        loss=loss,
        features=features,
        names=names,
        key=resolve_key(rng),
        run=run,
        rows=rows,
        chose_sampler=isinstance(given, Given),
    )


def _check_run(run: Run | None) -> None:
    """A page is about results: of a part of the units, or of units that are only counted, there are none."""
    check_no_end(run, "a report")
    part, call = resolved(run).part, calls.at_work()
    if part is not None:
        raise ValueError(f"run has part={part}, but a report needs all results: leave part out, it goes on alone")
    if call is not None and call.dry:
        raise ValueError("rl.estimate counts the units of one method: estimate those of the report one by one")


def _sets(given: GivenLike, rows: Rows) -> Given:
    """Sets by name, the empty one first: what all others are compared with."""
    given = "rest" if given is None else given
    found = as_given(given)
    sets = found.variables
    if not isinstance(sets, Mapping):
        if isinstance(sets, str) and sets != "rest":
            raise ValueError(f"given={shown(sets)} is one name: pass a list, [{shown(sets)}], or 'rest'")
        if not isinstance(sets, str) and not (isinstance(sets, Sequence) or hasattr(sets, "__array__")):
            raise TypeError(f"given={shown(sets)}: pass a list of names, 'rest', a mapping of these or rl.Given")
        sets = {_called(sets, rows): sets}
    empty = [name for name, one in sets.items() if not isinstance(one, str) and len(one) == 0]
    rest = {name: one for name, one in sets.items() if name not in empty}
    if not rest:
        raise ValueError("given names no variable: pass names of features, 'rest', or leave it out")
    checked = dataclasses.replace(found, variables={empty[0] if empty else NOTHING: [], **rest})
    if not isinstance(given, str) and rows.inputs is None:
        known = variables.gather(rows, found.context, rows.y)
        variables.resolve_given(checked.variables, known)
        if found.fit_on is not None:
            variables.gather_training(found.fit_on, known, rows.flat)
    return checked


def _called(chosen: Variables, rows: Rows) -> str:
    if isinstance(chosen, str):
        return REST
    names = rows.names
    known = [
        names[one] if isinstance(one, int | np.integer) and -len(names) <= one < len(names) else str(one)
        for one in chosen
    ]
    return ", ".join(known) if len(known) <= 3 else f"{', '.join(known[:2])} and {len(known) - 2} more"


def checked_path(path: object) -> Path:
    """Where the page goes: said before the work begins if it cannot."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path={shown(path)} is no file name: pass one such as 'audit.html'")
    found = Path(path)
    if found.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path={shown(str(path))} must end in .html, because the report is a page")
    if not found.parent.is_dir():
        raise FileNotFoundError(f"path={shown(str(path))}: the folder does not exist; make it first")
    if found.is_dir():
        raise IsADirectoryError(f"path={shown(str(path))} is a folder: pass the name of a file")
    return found


def checked_sections(sections: object, known: Sequence[str], train: object) -> tuple[str, ...]:
    """The sections in the order of the page; all that can apply if none is named."""
    if sections is None:
        return tuple(name for name in known if train is not None or name != "splits")
    if isinstance(sections, str) or not isinstance(sections, Sequence | set | frozenset):
        raise TypeError(f"sections={shown(sections)} is not a list: choose some of {listed(known, 9)}")
    strange = [name for name in sections if name not in known]
    if strange or not sections:
        what = f"names {shown(strange[0])}, which is unknown" if strange else "is empty"
        raise ValueError(f"sections {what}: choose some of {listed(known, 9)}")
    if "splits" in sections and train is None:
        raise ValueError("sections names 'splits', which compares training with test rows: pass train=(X, y)")
    return tuple(name for name in known if name in sections)
