"""Values as error messages show them: on one line, and never all of a large one."""

from __future__ import annotations

from typing import Any


def shown(value: Any, most: int = 60) -> str:
    """``repr(value)`` on one line, at most ``most`` characters of it."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a value that cannot be shown must not hide what is wrong with it
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 3]}..."
