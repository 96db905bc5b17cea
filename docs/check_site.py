"""Check built pages without a network: ``python docs/check_site.py docs/_build/html``.

Every link inside the site leads to a page, and to an anchor that this page has. No script, style, font or picture is
loaded from elsewhere: the pages work offline.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself, as opposed to what a reader may follow.
_LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
_FOLLOWED = ("canonical", "index", "search", "next", "prev")
_STYLE_URL = re.compile(r"""(?:@import\s+|url\()\s*["']?([^"')\s]+)""")


class Page(HTMLParser):
    """The anchors of a page, the links in it, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.anchors, self.links, self.loaded = path, {"", "top"}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        name = _LOADED.get(tag, "")
        if name in found and found.get("rel", "") not in _FOLLOWED:
            self.loaded.append(found[name])


def faults(site: Path) -> list[str]:
    """What is wrong, one line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    wrong = [fault for page in pages.values() for fault in _page_faults(page, pages, site)]
    for style in sorted(site.rglob("*.css")):
        urls = _STYLE_URL.findall(style.read_text(encoding="utf-8"))
        wrong += [f"{style.relative_to(site)} loads {url}" for url in urls if _leaves(url)]
    return wrong


def _page_faults(page: Page, pages: dict[Path, Page], site: Path) -> list[str]:
    name = page.path.relative_to(site)
    wrong = [f"{name} loads {url}" for url in page.loaded if _leaves(url)]
    for url in page.links + page.loaded:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            wrong.append(f"{name} links to {url}: no such file")
        elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
            wrong.append(f"{name} links to {url}: no such anchor")
    return wrong


def _leaves(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https") or url.startswith("//")


def main(site: Path) -> int:
    site = site.resolve()
    wrong = faults(site)
    count = sum(1 for _ in site.rglob("*.html"))
    sys.stderr.write("".join(f"{fault}\n" for fault in wrong))
    sys.stdout.write(f"{count} pages, {len(wrong)} faults\n")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
