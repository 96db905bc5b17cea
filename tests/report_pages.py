"""What a report's page says, read back from its HTML without a browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"img", "meta", "link", "br"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str | None]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str) -> list[Node]:
        found = []
        for child in self.children:
            if isinstance(child, Node):
                found += ([child] if child.tag == tag else []) + child.all(tag)
        return found

    def __getitem__(self, name: str) -> str:
        value = self.attributes[name]
        assert value is not None
        return value


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> has an attribute twice"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(path: Path) -> Node:
    """The tree of a page; every element must be closed where it should be."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def section(page: Node, name: str) -> Node:
    return next(one for one in page.all("section") if one.attributes.get("id") == name)


@dataclass
class Table:
    """Heads, and for each feature the numbers in full and as they are written."""

    heads: list[str]
    numbers: dict[str, list[float]]
    written: dict[str, list[str]]

    def column(self, head: str, names: list[str] | tuple[str, ...]) -> list[float]:
        place = self.heads.index(head) - 1
        return [self.numbers[name][place] for name in names]


def tables(part: Node) -> list[Table]:
    found = []
    for table in part.all("table"):
        if table.attributes.get("class", "").startswith("sortable"):
            rows = table.all("tbody")[0].all("tr")
            cells = {row.all("th")[0].text: row.all("td") for row in rows}
            found.append(
                Table(
                    [head.text for head in table.all("thead")[0].all("th")],
                    {name: [float(cell["data-value"]) for cell in row] for name, row in cells.items()},
                    {name: [cell.text for cell in row] for name, row in cells.items()},
                )
            )
    return found
