"""Which part of what a network answers are its predictions: one of several outputs, by name, place or function.

A network that is passed as it is may answer with an object that has ``logits``, a tuple of one array or a mapping of
one: nothing is ambiguous then. Anything else needs a word from the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from reliance._core.arrays import is_array
from reliance._core.kinds import Array
from reliance._core.words import listed, shown

# A name (an attribute or a key), a place in a tuple, or a function of the whole answer; None: the only one.
OutputLike: TypeAlias = str | int | Callable[[object], object] | None

# What libraries call raw scores of classes, beside which they may answer much else.
_LOGITS = "logits"
_MISSING = object()


def check_output(output: object) -> None:
    if output is None or isinstance(output, str) or callable(output):
        return
    if not isinstance(output, int) or isinstance(output, bool):
        raise TypeError(
            f"output={shown(output)}: pass a name such as 'logits', a place such as 0, or a function of the answer"
        )


def choose(answer: object, output: OutputLike, name: str) -> Array:
    """The predictions in an answer; what is no array in the end is refused where predictions are checked."""
    # Not an array yet, as far as is known here: `calling.check_prediction` looks at every prediction.
    found: Array = _chosen(answer, output, name)  # type: ignore[assignment]
    if found is None:
        raise TypeError(
            f"model {name:.60} returned None{_of(output)}: return predictions, one per row; a function without a "
            "return statement does this"
        )
    return found


def _of(output: OutputLike) -> str:
    return "" if output is None else f" for output={shown(output)}"


def _chosen(answer: object, output: OutputLike, name: str) -> object:
    if output is None:
        return answer if answer is None or is_array(answer) else _only(answer, name)
    if callable(output):
        return output(answer)
    found = _at(answer, output)
    if found is _MISSING:
        raise ValueError(
            f"output={shown(output)} is not in what model {name:.60} returned, {_kind(answer)}: {_there(answer)}"
        )
    return found


def _at(answer: object, output: str | int) -> object:
    if isinstance(output, int):
        if not isinstance(answer, list | tuple) or not -len(answer) <= output < len(answer):
            return _MISSING
        return answer[output]
    if isinstance(answer, Mapping):
        return answer.get(output, _MISSING)
    return _MISSING if is_array(answer) else getattr(answer, output, _MISSING)


def _only(answer: object, name: str) -> object:
    """The one array in an answer that is none itself."""
    found = _at(answer, _LOGITS)
    if found is not _MISSING:
        return found
    parts = list(answer.values()) if isinstance(answer, Mapping) else answer
    if isinstance(parts, list | tuple) and len(parts) == 1:
        return parts[0]
    if isinstance(parts, tuple) or isinstance(answer, Mapping):
        raise TypeError(
            f"model {name:.60} returned {_kind(answer)}: choose one as in rl.models.torch(net, output=...), or "
            f"rl.models.jax; {_there(answer)}"
        )
    return answer


def _kind(answer: object) -> str:
    kind = type(answer).__name__[:40]
    return f"a {kind} of {len(answer)}" if isinstance(answer, list | tuple | Mapping) else f"a {kind}"


def _there(answer: object) -> str:
    """What could be chosen."""
    if isinstance(answer, Mapping):
        return f"there are {listed(answer)}" if answer else "it is empty"
    if isinstance(answer, list | tuple) and not hasattr(answer, "_fields"):
        return f"there are the places 0 to {len(answer) - 1}" if answer else "it is empty"
    if is_array(answer):
        return "there is one array only, so leave output out"
    known = getattr(answer, "_fields", None) or [key for key in getattr(answer, "__dict__", ()) if key[:1] != "_"]
    return f"there are {listed(known)}" if known else "it has no parts"
