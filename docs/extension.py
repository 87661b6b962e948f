"""What the pages need beyond Sphinx's own: tables made from the code, and names as users import them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import replog
from tools import buggify_points
from tools.scenario_keys import markdown

# Values and aliases have no docstring of their own, only that of their type.
VALUES = {
    "replog.ConsumerEvent": "What `Consumer.next_event` returns: one of the classes below.",
    "replog.DEFAULT_BOOTSTRAP": "The addresses of the first nodes of a `replog up` with default ports.",
    "replog.Header": "A header of a record: its key, and its value or None.",
}
# Their constructors are not for users: `PartitionLog.open` and `load_scenario` are.
MADE_ELSEWHERE = ("replog.PartitionLog", "replog.RunResult", "replog.Scenario")


class ScenarioKeys(SphinxDirective):
    """`{scenario-keys}`: every key of a scenario file, from the models that read the files."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(markdown(), allow_section_headings=True)


class BuggifyPoints(SphinxDirective):
    """`{buggify-points}`: every point of the catalogue, from the code that asks for them."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(buggify_points.markdown())


def find_public(app: Sphinx, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Resolve a name of an inner module to the public one: users import all names from replog."""
    name = node.get("reftarget", "").rsplit(".", 1)[-1]
    if node.get("refdomain") != "py" or name not in replog.__all__:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"replog.{name}", node, content)


def link_within_the_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to the map of the code, which is outside of this folder, lead to the page that includes it."""
    source[0] = source[0].replace("](../ARCHITECTURE.md)", "](architecture.md)")


def explain_value(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Replace the docstring of a value's type by what the value is."""
    if name in VALUES:
        lines[:] = [VALUES[name]]


def hide_constructor(
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """Leave out the arguments of a constructor that users do not call, as of every enum."""
    is_enum = isinstance(value, type) and issubclass(value, Enum)
    return ("", None) if is_enum or name in MADE_ELSEWHERE else None


def keep_backslashes(app: Sphinx, context: object, lines: list[str]) -> None:
    """Show an option's help as the terminal does: sphinx-click reads it as reStructuredText."""
    lines[:] = [line.replace("\\", "\\\\").replace("[,…>", "[,…]>") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("scenario-keys", ScenarioKeys)
    app.add_directive("buggify-points", BuggifyPoints)
    app.connect("source-read", link_within_the_pages)
    app.connect("missing-reference", find_public)
    app.connect("autodoc-process-docstring", explain_value)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("sphinx-click-process-options", keep_backslashes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
