"""A case, what may come of it, and how that is checked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

LONGEST = 300
# What an error of the library never says: words of the interpreter, of NumPy and of others about their own insides.
RAW = re.compile(
    r"truth value|unhashable|object too deep|out of bounds|broadcast|has no attribute|ufunc|not subscriptable"
    r"|cannot reshape|setting an array element|unsupported operand|not iterable|inhomogeneous|dtype\('|0x[0-9a-f]{6}"
    r"|could not convert|must be real number|not supported between|cannot be interpreted|expected str|Traceback"
    r"|list index|invalid literal|has no len|Cannot interpret|assert|core dimension|zip\(\)|unpack|positional argument"
)


@dataclass(frozen=True)
class Number:
    """The call returns what the literal loop returns; ``rtol`` relative to the largest entry."""

    oracle: Callable[[], Any]
    rtol: float = 1e-9


@dataclass(frozen=True)
class Refused:
    """The call raises a short error that holds all the words and none of the insides."""

    words: tuple[str, ...]
    kinds: tuple[type[BaseException], ...] = (ValueError, TypeError)


@dataclass(frozen=True)
class Warned:
    """The call returns the literal number and warns with all the words."""

    words: tuple[str, ...]
    oracle: Callable[[], Any]
    rtol: float = 1e-9


Expectation = Number | Refused | Warned


@dataclass(frozen=True)
class Case:
    """``function``: the public name that is called. ``call`` returns numbers."""

    function: str
    odd: str
    call: Callable[[], Any]
    expected: Expectation

    @property
    def name(self) -> str:
        return f"{self.function}-{self.odd}".replace(" ", "_")


def check(case: Case) -> None:
    expected = case.expected
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("error", category=RuntimeWarning, module="reliance")
        if isinstance(expected, Refused):
            _check_refusal(case, expected)
            return
        found = case.call()
    if isinstance(expected, Warned):
        said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        assert any(all(word in text for word in expected.words) for text in said), f"not warned: {said}"
        assert all(len(text) <= LONGEST for text in said if all(word in text for word in expected.words))
    truth = np.asarray(expected.oracle(), dtype=np.float64)
    found = np.asarray(found, dtype=np.float64)
    assert found.shape == truth.shape, f"shape {found.shape} for {truth.shape}"
    largest = float(np.max(np.abs(truth[np.isfinite(truth)]), initial=0.0))
    np.testing.assert_allclose(found, truth, rtol=expected.rtol, atol=expected.rtol * max(largest, 1e-300))


def _check_refusal(case: Case, expected: Refused) -> None:
    with pytest.raises(expected.kinds) as caught:
        case.call()
    text, kind = str(caught.value), type(caught.value).__name__
    assert len(text) <= LONGEST, f"{len(text)} characters: {text[:400]}"
    raw = RAW.search(text)
    assert raw is None, f"{kind} says {raw[0]!r}: {text}"
    missing = [word for word in expected.words if word not in text]
    assert not missing, f"{kind} does not say {missing}: {text}"
