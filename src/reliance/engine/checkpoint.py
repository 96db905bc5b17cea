"""Finished units in a folder: the same call goes on where it was, another one is refused.

Each measurement of a call has a folder of its own, with a manifest that says what was measured and a file for each
unit. Files appear as a whole or not at all, so a process that is killed loses what it had in hand and nothing else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reliance._core import arrays
from reliance._core.calls import Call
from reliance._core.checks import warn
from reliance._core.kinds import Array
from reliance._core.words import short, shown
from reliance.engine.reductions import Accumulator
from reliance.engine.runners import Runner
from reliance.engine.sending import Advance, Desk
from reliance.engine.units import Found, Unit, Work
from reliance.losses.outputs import is_whole

_FORMAT = 1
_SUMS = ("rows", "columns", "donors", "squares", "moved", "table", "contrasts")
_BROKEN = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
# What a manifest says, and what a user knows it by.
_WORDS = {
    "format": "the version of reliance",
    "X": "X",
    "y": "y",
    "weights": "weights",
    "predictions": "the model's predictions",
    "losses": "loss",
    "features": "features",
    "plan": "the draws",
    "key": "rng",
    "replacements": "the values that features are replaced by",
    "cut": "memory or block",
}
# Rows whose replacements are looked at.
_LOOKED_AT = 64


class Keeper:
    """Keeps the units of an evaluation: ``each`` does those that are not there yet."""

    def __init__(self, call: Call, folder: Path, part: tuple[int, int] | None = None) -> None:
        self.call, self.folder, self.part = call, folder, part
        self.works = itertools.count()
        self.digests: dict[int, tuple[Array, str]] = {}  # with the array, so that its identity is not used again

    def each(self, work: Work, runner: Runner, advance: Advance) -> Iterator[tuple[Unit, Found]]:
        """All units with their sums, in order; of a part, nothing, for the sums are in the folder."""
        folder = self.folder / f"{next(self.works):04d}"
        manifest = self._manifest(work)
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _agree(folder, manifest)
            there = _numbers(folder)
        count, mine = sum(1 for _ in work.items()), (1, 1) if self.part is None else self.part
        wanted = {k for k in range(count) if k not in there and k % mine[1] == mine[0] - 1}
        fresh = runner.each(_Missing(work, folder, frozenset(wanted)), advance)
        if self.part is not None:
            there |= {number for (number, _), _ in fresh}
        else:
            yield from self._all(work, folder, wanted, fresh, advance)
        self.call.units += count
        self.call.ready += len(there)

    def _all(
        self,
        work: Work,
        folder: Path,
        wanted: set[int],
        fresh: Iterator[tuple[tuple[int, Unit], Found]],
        advance: Advance,
    ) -> Iterator[tuple[Unit, Found]]:
        desk = Desk()
        for number, unit in enumerate(work.items()):
            if number in wanted:
                yield unit, next(fresh)[1]
                continue
            found = _read(_path(folder, number), work, unit)
            if found is None:
                found = _kept(work, folder, number, unit, desk, advance)
            else:
                advance(work.size(unit))
            yield unit, found
        yield from ((unit, found) for (_, unit), found in fresh)  # none: ends the runner's own work

    # -----------------------------------------------------------------------------------------------------------------
    # What was measured

    def _manifest(self, work: Work) -> dict[str, object]:
        problem, base, plan = work.problem, work.base, work.plan
        return {
            "format": _FORMAT,
            "X": self._digest(problem.flat),
            "y": [self._digest(target) for target in base.targets if target is not base.predictions],
            "weights": None if base.weights is None else self._digest(base.weights),
            "predictions": self._digest(base.predictions),
            "losses": [
                [function.name, self._digest(own)]
                for function, own in zip(problem.losses, base.host_losses, strict=True)
            ],
            "features": [[f.name, *f.columns] for batch in work.batches for f in batch.features],
            "plan": [plan.label, plan.n, plan.columns],
            "key": str(problem.key),
            "replacements": self._replacements(work),
            "cut": [[len(batch.features), *batch.shape] for batch in work.batches],
        }

    def _digest(self, x: Array) -> str:
        if id(x) not in self.digests:
            self.digests[id(x)] = x, _digest(x)
        return self.digests[id(x)][1]

    def _replacements(self, work: Work) -> str:
        """What a store holds besides the rows, and what the first rows borrow in the first and the last column."""
        store, plan = work.problem.store, work.plan
        found = hashlib.sha256(type(store).__name__.encode())
        for name, value in sorted(vars(store).items()):
            if name != "flat" and arrays.is_array(value):
                found.update(self._digest(value).encode())
        rows = range(min(plan.n, _LOOKED_AT))
        for feature in (feature for batch in work.batches for feature in batch.features):
            own = plan.part(feature)
            for column in (0, plan.columns - 1):
                numbers = np.asarray(own.donors(rows, range(column, column + 1)))
                values = store.replacements(rows, arrays.from_host(numbers, store.xp, store.device))
                host = np.asarray(values) if isinstance(values, range) else arrays.to_host(values)
                found.update(np.ascontiguousarray(host).tobytes())
        return found.hexdigest()


def _digest(x: Array) -> str:
    """Of all values, block of rows by block of rows."""
    step = max(1, 2**24 // max(1, arrays.itemsize(x) * int(np.prod(x.shape[1:], dtype=np.int64))))
    found = hashlib.sha256(f"{tuple(x.shape)} {x.dtype}".encode())
    for start in range(0, int(x.shape[0]), step):
        found.update(np.ascontiguousarray(arrays.to_host(x[start : start + step, ...])).tobytes())
    return found.hexdigest()


def _agree(folder: Path, manifest: Mapping[str, object]) -> None:
    """The manifest of a folder is this one; it is written if there is none."""
    path = folder / "manifest.json"
    if not path.exists():
        _write(path, json.dumps(manifest, indent=1).encode())
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        differ = {name for name in manifest if known[name] != manifest[name]}
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"checkpoint={_named(folder)} holds a damaged manifest.json: delete the folder, or pass another one"
        ) from None
    # Another key with the same replacements: nothing was drawn. Other ones follow from other data or another key.
    if "replacements" not in differ:
        differ.discard("key")
    elif len(differ) > 1:
        differ.discard("replacements")
    if differ:
        words = ", ".join(words for name, words in _WORDS.items() if name in differ)
        again = "rng=, the same one, in both calls" if "key" in differ else "the same arguments"
        raise ValueError(
            f"checkpoint={_named(folder)} is of another call, which differs in {words}: pass {again}, or another folder"
        )


def _named(folder: Path) -> str:
    """The folder that the user has named, of one of its measurements."""
    return shown(str(folder.parent.parent))


# ---------------------------------------------------------------------------------------------------------------------
# Units


@dataclass(frozen=True, eq=False)
class _Missing:
    """The job of the units that are not there yet; who does one writes it."""

    work: Work
    folder: Path
    wanted: frozenset[int]

    def items(self) -> Iterator[tuple[int, Unit]]:
        return ((number, unit) for number, unit in enumerate(self.work.items()) if number in self.wanted)

    def do(self, item: tuple[int, Unit], desk: Desk, advance: Advance) -> Found:
        return _kept(self.work, self.folder, *item, desk, advance)

    def size(self, item: tuple[int, Unit]) -> int:
        return self.work.size(item[1])

    @property
    def on_threads(self) -> bool:
        return self.work.on_threads

    def here(self) -> AbstractContextManager[None]:
        return self.work.here()

    def away(self) -> AbstractContextManager[None]:
        return self.work.away()

    def sent(self) -> Mapping[str, object]:
        return self.work.sent()


def _kept(work: Work, folder: Path, number: int, unit: Unit, desk: Desk, advance: Advance) -> Found:
    """A unit that is done now, and kept."""
    found = work.do(unit, desk, advance)
    sums = {
        f"{place}.{index}.{name}": getattr(one, name)
        for place, feature in enumerate(_features(work, unit))
        for index, one in enumerate(found.sums[feature])
        for name in _SUMS
        if getattr(one, name) is not None
    }
    path = _path(folder, number)
    new = path.with_name(f".{uuid.uuid4().hex}.npz")
    with _explained(folder):
        try:
            np.savez(new, unit=_signature(unit), block=np.asarray(found.block), **sums)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
    return found


def _read(path: Path, work: Work, unit: Unit) -> Found | None:
    """What a file holds; None, with a warning, if it is damaged: the unit is done again."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not np.array_equal(file["unit"], _signature(unit)):
                raise ValueError("another unit")
            sums = {
                feature: tuple(
                    _sums(file, f"{place}.{index}.", Accumulator.init(work.plan, is_whole(function), unit.part))
                    for index, function in enumerate(work.problem.losses)
                )
                for place, feature in enumerate(_features(work, unit))
            }
            b, d = file["block"].tolist()
            return Found(sums, (b, d))
    except _BROKEN as error:
        warn(f"checkpoint unit {path.name} is damaged ({short(str(error), 80)}) and is done again")
        return None


def _sums(file: Mapping[str, np.ndarray], prefix: str, empty: Accumulator) -> Accumulator:
    """Of a feature under one loss, in arrays of the shapes that they must have."""
    for name in _SUMS:
        room = getattr(empty, name)
        if room is not None:
            room[...] = file[prefix + name].reshape(room.shape)
    return empty


def _features(work: Work, unit: Unit) -> list[str]:
    return [feature.name for feature in work.batches[unit.batch].features[unit.first : unit.last]]


def _signature(unit: Unit) -> np.ndarray:
    edges = [edge for one in unit.part for edge in (one.start, one.stop)]
    return np.asarray([unit.batch, unit.first, unit.last, *edges])


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.npz"


def _numbers(folder: Path) -> set[int]:
    """Of the units that are there."""
    return {int(name[:8]) for name in os.listdir(folder) if re.fullmatch(r"\d{8}\.npz", name)}


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f".{uuid.uuid4().hex}.tmp")
    new.write_bytes(content)
    os.replace(new, path)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = short(error.strerror or str(error), 60)
        raise OSError(
            error.errno,
            f"checkpoint={_named(folder)} cannot be used ({reason}): pass a folder that can be written, and "
            "that all workers see",
        ) from error
