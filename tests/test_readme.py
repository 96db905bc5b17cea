"""Every Python block of README.md and docs/ runs, each by itself in an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """The fenced ``python`` blocks as (line number of the first line, code)."""
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in FENCE.finditer(text)]


def collect() -> list[object]:
    params = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line, code in blocks(path.read_text(encoding="utf-8")):
            params.append(pytest.param(path, line, code, id=f"{path.relative_to(ROOT)}:{line}"))
    return params


@pytest.mark.parametrize(("path", "line", "code"), collect())
def test_block_runs(path: Path, line: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "jax", "sklearn", "pandas", "matplotlib"):
        if re.search(rf"^\s*(import|from) {package}\b", code, re.MULTILINE):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # Blank lines in front keep the line numbers of tracebacks those of the document.
    exec(compile("\n" * (line - 1) + code, str(path), "exec"), {"__name__": "__main__"})


def test_readme_shows_three_backends() -> None:
    code = "\n".join(code for _, code in blocks((ROOT / "README.md").read_text(encoding="utf-8")))
    for package in ("numpy", "torch", "jax"):
        assert f"import {package}" in code


def test_blocks_are_found() -> None:
    text = "one\n```python\nx = 1\n```\n```text\nno\n```\n```python\ny = 2\n```\n"
    assert blocks(text) == [(3, "x = 1\n"), (9, "y = 2\n")]
