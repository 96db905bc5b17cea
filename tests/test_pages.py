"""The pages before they are built: every method is in the table of questions, every page has a figure or a reason."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import reliance as rl

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in (DOCS, DOCS / "start") for path in folder.glob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table() -> str:
    return README.partition("## Which function answers my question?")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "name", [name for name in rl.__all__ if inspect.isfunction(getattr(rl, name)) and name != "load"]
)
def test_the_table_of_questions_has_every_method(name: str) -> None:
    assert f"`rl.{name}`" in table()


def test_the_table_of_questions_names_only_what_is_there() -> None:
    for name in re.findall(r"`rl\.(\w+)`", table()):
        assert name in rl.__all__


@pytest.mark.parametrize("name", rl.__all__)
def test_the_reference_has_every_name(name: str) -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert re.search(rf"^   {name}$|:: reliance\.{name}$", text, re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_has_a_figure_or_says_why_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name == "index.md" and path.parent == DOCS:
        text += README  # a part of which it includes
    assert "![" in text or ".. plot::" in text or text.startswith("<!-- No figure:")


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_pictures_have_alternative_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "![](" not in text
    for directive in re.findall(r"^\.\. plot::.*\n.*$", text, re.MULTILINE):
        assert ":alt: " in directive


def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", DOCS / "check_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GOOD = '<h1 id="one">1</h1><a href="#one">1</a><a href="b.html#two">2</a><a href="https://example.org/gone">3</a>'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", None),
        ('<a href="c.html">', "a.html links to c.html: no such file"),
        ('<a href="b.html#one">', "a.html links to b.html#one: no such anchor"),
        ('<img src="none.png">', "a.html links to none.png: no such file"),
        ('<script src="https://example.org/x.js"></script>', "a.html loads https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "a.html loads //example.org/x.css"),
        ('<link rel="canonical" href="https://example.org/a.html">', None),
    ],
)
def test_the_checker_of_built_pages(tmp_path: Path, text: str, fault: str | None) -> None:
    (tmp_path / "a.html").write_text(GOOD + text, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="two">2</h2>', encoding="utf-8")
    assert checker().faults(tmp_path.resolve()) == ([] if fault is None else [fault])


def test_the_checker_reads_styles(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="two">2</h2>', encoding="utf-8")
    (tmp_path / "s.css").write_text("@import 'https://example.org/f.css'; a {background: url(x.png)}", encoding="utf-8")
    assert checker().faults(tmp_path.resolve()) == ["s.css loads https://example.org/f.css"]
