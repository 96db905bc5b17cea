"""Names in the code font become links, ``rl.Run`` in a page or `Run` in a docstring; one that is not found warns."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from reliance.results.records import Record

# rl.name or reliance.name, perhaps called.
_NAME = re.compile(r"(?:rl|reliance)\.([A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)


class NameLinks(SphinxTransform):
    """Turn inline code that begins with ``rl.`` into a reference to the name."""

    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            found = _NAME.fullmatch(literal.astext())
            if found is None or isinstance(literal.parent, nodes.reference | addnodes.pending_xref):
                continue
            reference = addnodes.pending_xref(
                "",
                literal.deepcopy(),
                refdomain="py",
                reftype="obj",
                reftarget=f"reliance.{found.group(1)}",
                refexplicit=True,
                refdoc=self.env.docname,
                refwarn=True,
            )
            literal.replace_self(reference)


def no_constructor(app: Sphinx, what: str, name: str, obj: Any, *args: Any) -> tuple[str, None] | None:
    """Results are returned, not made: thirty arguments in their title help nobody."""
    return ("", None) if what == "class" and issubclass(obj, Record) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(NameLinks)
    app.connect("autodoc-process-signature", no_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
