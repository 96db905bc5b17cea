"""Units that are kept in a folder: resumed, shared out in parts, and refused if they are of another call."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
from reliance.engine import units
from test_scale import FEW, METHODS, MOSTLY_SLOW, WEIGHTS, X, Y, assert_same, fit, model, small_units

__all__ = ["small_units"]  # a fixture that is used by being there


def unit_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("[0-9]*.npz"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[units.Unit]:
    """The units that are done, not read."""
    found: list[units.Unit] = []
    do = units.Work.do

    def counted(self: units.Work, unit: units.Unit, *arguments: Any) -> Any:
        found.append(unit)
        return do(self, unit, *arguments)

    monkeypatch.setattr(units.Work, "do", counted)
    return found


@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_kept_units_change_no_bit_and_are_not_done_again(name: str, tmp_path: Path, done: list[units.Unit]) -> None:
    expected = METHODS[name]()
    done.clear()
    assert_same(METHODS[name](run=rl.Run(checkpoint=tmp_path)), expected)
    assert len(unit_files(tmp_path)) == len(done) > 1
    done.clear()
    assert_same(METHODS[name](run=rl.Run(checkpoint=tmp_path, workers=2)), expected)
    assert not done


@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_parts_are_gathered(name: str, tmp_path: Path, done: list[units.Unit]) -> None:
    if name == "until":
        pytest.skip("rounds of draws depend on those before them")
    expected = METHODS[name]()
    for part in (2, 3, 1):
        answer = METHODS[name](run=rl.Run(checkpoint=tmp_path, part=(part, 3)))
    done.clear()
    total = len(unit_files(tmp_path))
    assert answer == f"part 1 of 3 is done: {total} of {total} units are there"
    assert_same(METHODS[name](run=rl.Run(checkpoint=tmp_path)), expected)
    assert not done


@pytest.mark.parametrize("name", FEW)
def test_what_is_missing_is_done(name: str, tmp_path: Path, done: list[units.Unit]) -> None:
    expected = METHODS[name](run=rl.Run(checkpoint=tmp_path))
    gone = unit_files(tmp_path)[1::2]
    for path in gone:
        path.unlink()
    done.clear()
    assert_same(METHODS[name](run=rl.Run(checkpoint=tmp_path, workers=3)), expected)
    assert len(done) == len(gone)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"0.0.rows.npy") + 200
    content[at] ^= 255
    path.write_bytes(bytes(content))


def swap_with_another(path: Path) -> None:
    path.write_bytes(unit_files(path.parent)[0].read_bytes())


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte, swap_with_another])
def test_a_damaged_unit_is_done_again(damage: Callable[[Path], None], tmp_path: Path, done: list[units.Unit]) -> None:
    expected = METHODS["ranks"](run=rl.Run(checkpoint=tmp_path))
    victim = unit_files(tmp_path)[3]
    damage(victim)
    done.clear()
    with pytest.warns(UserWarning, match=rf"{victim.name} is damaged .* is done again"):
        assert_same(METHODS["ranks"](run=rl.Run(checkpoint=tmp_path)), expected)
    assert len(done) == 1
    assert_same(METHODS["ranks"](run=rl.Run(checkpoint=tmp_path)), expected)  # and it is whole again


# ---------------------------------------------------------------------------------------------------------------------
# Another call


def call(folder: Path, **changed: Any) -> Any:
    options = {"model": model, "X": X, "y": Y, "draws": 6, "rng": 1, "weights": WEIGHTS} | changed
    arguments = [options.pop(name) for name in ("model", "X", "y")]
    return rl.permutation_importance(*arguments, **options, run=rl.Run(checkpoint=folder))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"X": X + 1e-9}, "differs in X, the model's predictions, loss:"),
        ({"y": Y + 1e-9}, "differs in y, loss:"),
        ({"weights": WEIGHTS[::-1]}, "differs in weights:"),
        ({"weights": None}, "differs in weights:"),
        ({"model": lambda rows: rows[:, 0] + 1e-9}, "differs in the model's predictions, loss:"),
        ({"loss": "absolute_error"}, "differs in loss:"),
        ({"loss": lambda y, prediction: (y - prediction) ** 4}, "differs in loss:"),
        ({"features": [0, 1]}, "differs in features"),
        ({"draws": 7}, "differs in the draws"),
        ({"draws": rl.Draws(6, design="shifts")}, "differs in the draws:"),
        ({"rng": 2}, "differs in rng: pass rng=, the same one"),
        ({"rng": None}, "differs in rng: pass rng=, the same one"),
    ],
)
def test_another_call_is_refused_by_what_differs(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    call(tmp_path)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        call(tmp_path, **changed)
    assert len(str(error.value)) <= 300
    call(tmp_path)  # and nothing is lost


def test_another_block_is_refused(tmp_path: Path) -> None:
    call(tmp_path)
    with pytest.raises(ValueError, match="differs in memory or block"), rl.Run(block=(6, 3)):
        call(tmp_path)


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    call(tmp_path)
    manifest = next(tmp_path.rglob("manifest.json"))
    known = json.loads(manifest.read_text())
    assert known["losses"][0][0] == "squared_error"
    for content in ("{", "{}", "[1]"):
        manifest.write_text(content)
        with pytest.raises(ValueError, match=r"damaged manifest.json: delete the folder"):
            call(tmp_path)


def test_all_pairs_need_no_rng(tmp_path: Path) -> None:
    one, other = (rl.model_reliance(model, X, Y, route="plain", run=rl.Run(checkpoint=tmp_path)) for _ in range(2))
    np.testing.assert_array_equal(one.values, other.values)


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be kept


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"checkpoint='.* cannot be used \(Not a directory\): pass a folder that can"):
        call(tmp_path / "file")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(np, "savez", refuse)
    with pytest.raises(PermissionError, match=r"cannot be used \(Permission denied\)"):
        call(tmp_path)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda run: rl.algorithm_reliance(fit, X, Y, cv=2, rng=0, run=run), "refits are not cut"),
        (lambda run: rl.null_importance(fit, X, Y, rounds=2, rng=0, run=run), "refits are not cut"),
        (lambda run: rl.model_class_reliance(rl.LinearClass(), X, Y, epsilon=0.1, run=run), "searches in a class"),
    ],
)
def test_what_is_not_cut_is_refused(work: Callable[[rl.Run], Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        work(rl.Run(checkpoint=tmp_path))


def test_parts_that_cannot_be(tmp_path: Path) -> None:
    for part, error in (((0, 3), ValueError), ((4, 3), ValueError), (3, TypeError), ((1.0, 2), TypeError)):
        with pytest.raises(error, match="part="):
            rl.Run(part=part)
    with pytest.raises(ValueError, match="pass checkpoint='folder', too"):
        METHODS["ranks"](run=rl.Run(part=(1, 2)))
    with pytest.raises(ValueError, match=r"looks at earlier draws .* pass a number of draws"):
        METHODS["until"](run=rl.Run(part=(1, 2), checkpoint=tmp_path))
    with pytest.raises(TypeError, match="checkpoint=3: pass the path"):
        rl.Run(checkpoint=3)


# ---------------------------------------------------------------------------------------------------------------------
# A process that is killed

_SCRIPT = """
import sys, time
import numpy as np
import reliance as rl
from reliance.engine import units

units._UNIT_ROWS = 200

def model(rows):
    time.sleep(float(sys.argv[2]))
    return rows[:, 0] * rows[:, 1]

X = np.random.default_rng(0).normal(size=(100, 3))
run = rl.Run(checkpoint=sys.argv[1], block=(100, 1))
result = rl.permutation_importance(model, X, X[:, 0], draws=24, rng=0, run=run)
print(result.values.tobytes().hex(), result.std_error.tobytes().hex())
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _SCRIPT, str(folder), str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    killed = start(tmp_path / "killed", 0.05)
    deadline = time.monotonic() + 60
    while len(unit_files(tmp_path / "killed")) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = {path: path.stat().st_mtime_ns for path in unit_files(tmp_path / "killed")}
    assert 5 <= len(kept) < 24
    again, _ = start(tmp_path / "killed", 0.0).communicate(timeout=60)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "whole"), "0.0"])
    exec(_SCRIPT, {"__name__": "whole"})
    assert again == capsys.readouterr().out != ""
    assert all(path.stat().st_mtime_ns == time_written for path, time_written in kept.items())
