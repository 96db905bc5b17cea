"""Every Python block of README.md and docs/ runs, each by itself in an empty directory, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
# A python block and, if one follows directly, the text block with its output.
FENCE = re.compile(
    r"^```python[ \t]*\n(.*?)^```[ \t]*\n(?:\s*^```text[ \t]*\n(.*?)^```[ \t]*$)?", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    line: int  # of the first line of code
    code: str
    output: str | None


def blocks(text: str) -> list[Block]:
    return [Block(text.count("\n", 0, found.start(1)) + 1, *found.groups()) for found in FENCE.finditer(text)]


def collect() -> list[object]:
    return [
        pytest.param(path, block, id=f"{path.relative_to(ROOT)}:{block.line}")
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for block in blocks(path.read_text(encoding="utf-8"))
    ]


def assert_same_text(printed: str, written: str) -> None:
    """Word by word, numbers to 2%: the last digits belong to the platform's linear algebra."""

    def words(text: str) -> list[str | float]:
        found: list[str | float] = []
        for word in text.replace("[", " ").replace("]", " ").split():
            try:
                found.append(float(word))
            except ValueError:
                found.append(word)
        return found

    got, expected = words(printed), words(written)
    assert len(got) == len(expected), printed
    for one, other in zip(got, expected, strict=True):
        assert one == (pytest.approx(other, rel=0.02) if isinstance(other, float) else other), printed


@pytest.mark.parametrize(("path", "block"), collect())
def test_block_runs(
    path: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("torch", "jax", "sklearn", "pandas", "matplotlib"):
        if re.search(rf"^\s*(import|from) {package}\b", block.code, re.MULTILINE):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # Blank lines in front keep the line numbers of tracebacks those of the document.
    exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), {"__name__": "__main__"})
    if block.output is not None:
        assert_same_text(capsys.readouterr().out, block.output)


def test_readme_shows_three_backends() -> None:
    code = "\n".join(block.code for block in blocks((ROOT / "README.md").read_text(encoding="utf-8")))
    for package in ("numpy", "torch", "jax"):
        assert f"import {package}" in code


def test_blocks_are_found() -> None:
    text = "one\n```python\nx = 1\n```\n\n```text\n1\n```\n```text\nno\n```\n```python\ny = 2\n```\n"
    assert blocks(text) == [Block(3, "x = 1\n", "1\n"), Block(13, "y = 2\n", None)]
    assert_same_text("a  1.001", "a 1.0\n")
    with pytest.raises(AssertionError):
        assert_same_text("a 1.1", "a 1.0")
