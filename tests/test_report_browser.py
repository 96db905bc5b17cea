"""Pages in a browser: the report, and pages of the documentation if they were built.

Debian's Chromium, driven by Playwright's package, which brings no browser of its own here. Without either the tests are
skipped, unless ``RELIANCE_BROWSER=required`` says that they must run.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl

REQUIRED = os.environ.get("RELIANCE_BROWSER") == "required"
HTML = Path(__file__).parents[1] / "docs" / "_build" / "html"
DOCS = ("index.html", "plots.html", "report.html")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<script>alert(1)</script>"


def missing() -> str:
    """Why there is no browser."""
    if shutil.which("chromium") is None:
        return "chromium is not installed: apt-get install chromium"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install playwright"
    return ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window, with a new profile that is thrown away."""
    why = missing()
    if why and not REQUIRED:
        pytest.skip(why)
    assert not why, why
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a name that would like to be a script."""
    pytest.importorskip("matplotlib")
    X = np.random.default_rng(0).normal(size=(80, 4))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.1 * np.random.default_rng(1).normal(size=80)
    target = tmp_path_factory.mktemp("report") / "audit.html"
    names = ["age", HOSTILE, "dose 10", "dose 9"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rl.report(lambda X: X[:, 0] + 0.5 * X[:, 1], X, y, path=target, train=(X + 0.1, y), names=names, rng=0)
    return target


class Opened:
    """A page, what its console said, and what it asked for beyond itself."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(**options)
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = path.as_uri()
        self.page.goto(self.address)


@pytest.fixture
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    found = Opened(browser, path)
    yield found
    found.page.close()


def column(page: Any, section: str, place: int) -> list[str]:
    rows = page.locator(f"#{section} table.sortable tbody tr")
    return [rows.nth(k).locator("th, td").nth(place).inner_text() for k in range(rows.count())]


def numbers(page: Any, section: str, place: int) -> list[float]:
    cells = page.locator(f"#{section} table.sortable tbody tr td:nth-child({place + 1})")
    return [float(cells.nth(k).get_attribute("data-value")) for k in range(cells.count())]


def test_no_error_and_no_request_leaves_the_file(opened: Opened) -> None:
    opened.page.wait_for_load_state("load")
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("data:")] == [opened.address]
    assert opened.page.locator("script").count() == 1


def test_every_figure_is_drawn_and_has_words(opened: Opened) -> None:
    images = opened.page.locator("img")
    assert images.count() >= 8
    for k in range(images.count()):
        assert images.nth(k).evaluate("image => image.complete && image.naturalWidth > 0")
        assert len(images.nth(k).get_attribute("alt")) > 20


def test_tables_sort(opened: Opened) -> None:
    page = opened.page
    assert numbers(page, "importance", 1) == sorted(numbers(page, "importance", 1), reverse=True)
    names = dict(zip(column(page, "importance", 0), numbers(page, "importance", 1), strict=True))
    heads = page.locator("#importance table.sortable thead th")
    heads.nth(1).locator("button").click()
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    heads.nth(1).locator("button").click()
    assert heads.nth(1).get_attribute("aria-sort") == "ascending"
    assert numbers(page, "importance", 1) == sorted(names.values())
    page.keyboard.press("Shift+Tab")  # by the keyboard as well
    page.keyboard.press("Enter")
    assert heads.nth(0).get_attribute("aria-sort") == "ascending"
    assert heads.nth(1).get_attribute("aria-sort") is None
    assert column(page, "importance", 0) == [HOSTILE, "age", "dose 9", "dose 10"]
    assert dict(zip(column(page, "importance", 0), numbers(page, "importance", 1), strict=True)) == names


def test_tips_say_what_columns_are_and_numbers_in_full(opened: Opened) -> None:
    page, tip = opened.page, opened.page.locator("#tip")
    assert tip.is_hidden()
    head = page.locator("#importance thead th").nth(1)
    head.hover()
    assert tip.inner_text() == head.get_attribute("data-tip")
    cell = page.locator("#importance tbody td").first
    cell.hover()
    assert float(tip.inner_text()) == float(cell.get_attribute("data-value"))
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    head.locator("button").focus()
    assert tip.inner_text() == head.get_attribute("data-tip")


def test_nothing_is_missing_without_scripts(browser: Any, path: Path, opened: Opened) -> None:
    """What the page says is the same word by word; only the buttons are not there."""
    plain = Opened(browser, path, java_script_enabled=False)
    assert plain.page.locator("thead button").count() == 0
    assert plain.page.locator("main").inner_text() == opened.page.locator("main").inner_text()
    assert HOSTILE in plain.page.locator("main").inner_text()
    plain.page.close()


@pytest.mark.parametrize("width", [400, 1000])
def test_no_page_is_wider_than_the_window(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_text_stands_out_from_its_ground(opened: Opened) -> None:
    """A contrast of 4.5 at least, as WCAG asks for; grounds are all but white."""
    colours = opened.page.evaluate(
        """() => [...document.querySelectorAll('main *, header *, footer *')]
            .filter((one) => [...one.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()))
            .map((one) => getComputedStyle(one).color)"""
    )
    assert colours
    for colour in set(colours):
        parts = [int(word) / 255 for word in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert (0.92 + 0.05) / (light + 0.05) >= 4.5, colour


def test_it_prints(opened: Opened, tmp_path: Path) -> None:
    opened.page.emulate_media(media="print")
    assert opened.page.locator("nav").is_hidden()
    printed = opened.page.pdf(path=str(tmp_path / "audit.pdf"), format="A4")
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3


@pytest.mark.parametrize("name", DOCS)
def test_pages_of_the_documentation(browser: Any, name: str) -> None:
    if not (HTML / name).is_file():
        pytest.skip(f"docs/_build/html/{name} was not built: make docs")
    found = Opened(browser, HTML / name)
    found.page.wait_for_load_state("load")
    assert [words for words in found.said if words.startswith("error")] == []
    assert [url for url in found.asked if not url.startswith(("file:", "data:"))] == []
    images = found.page.locator("main img")
    for k in range(images.count()):
        assert images.nth(k).get_attribute("alt")
        assert images.nth(k).evaluate("image => image.loading === 'lazy' || image.naturalWidth > 0")
    found.page.close()
