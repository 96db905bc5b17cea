"""What the functions in scikit-learn's place return."""

from __future__ import annotations

import functools

import numpy as np

from reliance._core.checks import warn
from reliance._core.words import listed


@functools.cache
def _answer() -> type:
    from sklearn.utils import Bunch

    class Answer(Bunch):  # type: ignore[misc]
        """A Bunch that warns of very skewed losses when its intervals are asked for, and not before."""

        def __getitem__(self, key: str) -> object:
            names = np.asarray(self["names"])[np.asarray(self["skewed"])].tolist() if key == "intervals" else []
            if names:
                warn(
                    f"the losses of {listed(names, 3)} are very skewed for so few rows: intervals may cover less than "
                    "95%; more rows help, or a score with lighter tails"
                )
            return super().__getitem__(key)

    Answer.__qualname__ = "Answer"  # where pickle finds it
    return Answer


def __getattr__(name: str) -> type:
    """``Answer``, whose base class is scikit-learn's and is imported when it is first wanted."""
    if name == "Answer":
        return _answer()
    raise AttributeError(name)
