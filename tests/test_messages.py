"""What errors say: the argument, what was given, what to do; and never all of a long list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import reliance as rl
from reliance._core.words import listed, short, shown

SOURCE = Path(__file__).parents[1] / "src" / "reliance"
MOST = 300
# What is joined in a message: a few words of ours, never names of the user's.
OURS = {"choices", "known", "named", "kinds", "homes", "wanted", "parts", "model.parts", "FORMULATIONS"}
CUT = ("short(", "words.short(", "str(dev)", "os.path.basename(")


def messages() -> Iterator[tuple[str, ast.expr]]:
    """Where, and what is said, in every raise and every warning of ours."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call) or not call.args:
                continue
            warns = (isinstance(call.func, ast.Attribute) and call.func.attr == "warn") or (
                isinstance(call.func, ast.Name) and call.func.id == "warn"
            )
            if isinstance(node, ast.Raise) or warns:
                yield f"{path.relative_to(SOURCE)}:{call.lineno}", call.args[0]


MESSAGES = list(messages())


def values_of(message: ast.expr) -> Iterator[ast.FormattedValue]:
    return (node for node in ast.walk(message) if isinstance(node, ast.FormattedValue))


def complaint(value: ast.FormattedValue) -> str | None:
    """Why a value in a message may be as long as it likes."""
    text = ast.unparse(value.value)
    is_cut = text.startswith(CUT) or re.search(r"\[(:\d+|-\d+:)\]$", text)
    if value.conversion == ord("r") and not is_cut:
        return f"{{{text}!r}} is not cut: say shown({text})"
    if re.match(r"(list|sorted|dict|set|tuple)\(", text) and "shape" not in text:
        return f"{text} is as long as it likes: say listed(...)"
    if re.search(r"\.tolist\(\)$", text):
        return f"{text} is all of an array: say shown(...) or listed(...)"
    joined = re.match(r"'[^']*'\.join\((?:map\((?:repr|str), )?([\w.]+)\)*$", text)
    if joined and joined[1] not in OURS and not joined[1].lstrip("_").isupper():
        return f"{text} joins what may be many: say listed({joined[1]})"
    return None


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 300


def test_no_message_shows_all_of_a_value() -> None:
    found = [f"{where}: {why}" for where, message in MESSAGES for v in values_of(message) if (why := complaint(v))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code, wrong",
    [
        ("f'{x!r}'", True),
        ("f'{x.name!r}'", True),
        ("f'{x[0]!r}'", True),
        ("f'{list(x)}'", True),
        ("f'{x.tolist()}'", True),
        ("f'{\", \".join(names)}'", True),
        ("f'{\", \".join(map(repr, names))}'", True),
        ("f'{\", \".join(map(repr, METHODS))}'", False),
        ("f'{shown(x)} {x[:40]!r} {tuple(x.shape)} {listed(x)} {n}'", False),
    ],
)
def test_the_check_itself(code: str, wrong: bool) -> None:
    message = ast.parse(code, mode="eval").body
    assert any(complaint(value) for value in values_of(message)) == wrong


def test_our_own_words_leave_room_for_what_was_given() -> None:
    """The text alone; what is put into it is cut to 60 signs each."""
    found = []
    for where, message in MESSAGES:
        if not isinstance(message, ast.JoinedStr | ast.Constant):
            continue
        own = sum(len(node.value) for node in ast.walk(message) if isinstance(node, ast.Constant) and _is_text(node))
        if own > MOST:
            found.append(f"{where}: {own} signs before anything is put into it")
    assert not found, "\n".join(found)


def _is_text(node: ast.Constant) -> bool:
    return isinstance(node.value, str)


# ---------------------------------------------------------------------------------------------------------------------
# The words


def test_a_few_of_many() -> None:
    assert listed(list("abc")) == "'a', 'b', 'c'"
    assert listed(list("abcdefg")) == "'a', 'b', 'c', 'd', 'e' and 2 more"
    assert listed(list("abcdefg"), 2) == "'a', 'b' and 5 more"
    assert listed([]) == ""
    assert listed({"k": 1}) == "'k'"
    assert listed(range(10**5), 2) == "0, 1 and 99998 more"


@pytest.mark.parametrize("length", [1, 10, 30, 50, 1000, 10**6])
@pytest.mark.parametrize("count", [1, 3, 6, 1000])
def test_many_long_names_stay_short(length: int, count: int) -> None:
    found = listed(["x" * length] * count)
    assert len(found) < 150
    whole = found.count("'x") + (int(re.search(r"and (\d+) more", found)[1]) if "more" in found else 0)  # type: ignore[index]
    assert whole == count


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [np.zeros((1000, 1000)), list(range(10**6)), "x" * 10**6, {k: k for k in range(10**5)}, Unshowable(), 7**5000],
)
def test_values_stay_short(value: object) -> None:
    assert len(shown(value)) <= 60
    assert "\n" not in shown(value)
    assert len(shown(value, 20)) <= 20


@pytest.mark.parametrize("value", ["a", 3, 0.5, None, True, (1, 2), [1, "b"], {"a": 1}, 1e300, "naïve"])
def test_short_values_are_shown_as_they_are(value: object) -> None:
    assert shown(value) == repr(value)


def test_names_fit_one_line() -> None:
    assert short("two\nlines") == "two lines"
    assert short("x" * 41) == "x" * 37 + "..."
    assert len(short("y " * 10**6)) <= 40
    assert short("x" * 100, 10) == "xxxxxxx..."


# ---------------------------------------------------------------------------------------------------------------------
# Calls with long names

LONG = [f"a long name of a column, number {j}, " + "and more of it, " * 30 for j in range(400)]
X = np.random.default_rng(0).normal(size=(6, 400))
Y = X[:, 0]


def first(X):
    return X[:, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: rl.permutation_importance(first, X, Y, names=LONG, features=["none of them"]),
        lambda: rl.permutation_importance(first, X, Y, names=[LONG[0]] * 400),
        lambda: rl.permutation_importance(first, X, Y, names=LONG[:3]),
        lambda: rl.permutation_importance(first, X, Y, loss="z" * 5000),
        lambda: rl.permutation_importance(first, X, Y, loss=["z" * 5000] * 50),
        lambda: rl.permutation_importance(first, X, Y, features={LONG[0]: [LONG[1]]}),
        lambda: rl.permutation_importance(first, X, Y, compare=LONG),
        lambda: rl.permutation_importance(first, X, Y, draws=LONG),
        lambda: rl.permutation_importance(first, X, Y, run=rl.Run(memory=LONG)),
        lambda: rl.permutation_importance(first, X, Y, run=rl.Run(block=LONG)),
        lambda: rl.permutation_importance(first, X, Y, keep=LONG),
        lambda: rl.permutation_importance(first, X, Y, rng=LONG),
        lambda: rl.permutation_importance(LONG, X, Y),
        lambda: rl.model_reliance(first, X, Y, pairs=LONG),
        lambda: rl.model_reliance(first, X, Y, route=LONG),
        lambda: rl.relative_importance(first, X, Y, names=LONG, given=["none of them"]),
        lambda: rl.relative_importance(first, X, Y, given=rl.Given(["x0"], sampler=LONG[0])),
        lambda: rl.interaction_importance(first, X, Y, names=LONG, between=[("none", LONG[0])]),
        lambda: rl.algorithm_reliance(LONG, X, Y),
        lambda: rl.algorithm_reliance(lambda X, y: first, X, Y, cv=LONG),
        lambda: rl.algorithm_reliance(lambda X, y: LONG, X, Y, cv=2),
        lambda: rl.cross_validated_importance(lambda X, y: first, X, Y, method=LONG[0]),
        lambda: rl.null_importance(lambda X, y: first, X, Y, rounds=LONG),
        lambda: rl.feature_impact(first, X, quantiles=LONG),
        lambda: rl.local_importance(first, X, Y, rows=LONG),
        lambda: rl.model_class_reliance(LONG, X, Y),
        lambda: rl.load(LONG[0]),
    ],
)
def test_errors_stay_short(call) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert len(str(error.value)) <= MOST, str(error.value)
