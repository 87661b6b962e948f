"""Parses YAML with line numbers: the plain data of a document, and the line of each of its parts."""

from __future__ import annotations

from typing import final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

Location = tuple[int | str, ...]


@final
class Source:
    """A YAML document as plain `data`, with the line of each part."""

    def __init__(self, document: object) -> None:
        self._document = document
        self.data = _plain(document)

    def line(self, location: Location) -> int:
        """Returns the line of the deepest part of `location` that the document has; the first line is 1."""
        node, line = self._document, 1
        if isinstance(node, CommentedMap) and node.lc.line is not None:
            line = node.lc.line + 1
        for part in location:
            if isinstance(node, CommentedMap) and part in node:
                line = node.lc.key(part)[0] + 1
            elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
                line = node.lc.item(part)[0] + 1
            else:
                break
            node = node[part]
        return line


def parse_yaml(text: str) -> Source:
    """Parse one document. Raises ValueError with `LINE: what`, for example for a duplicate key."""
    try:
        document = YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        mark = error.problem_mark
        key = str(error.problem).split('"')[1] if '"' in str(error.problem) else ""
        raise ValueError(f"{mark.line + 1}: duplicate key {key!r}") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(
            f"{mark.line + 1 if mark else 1}: no YAML: {error.problem or error.context}"
        ) from error
    except (YAMLError, ValueError) as error:
        raise ValueError(f"1: no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, CommentedMap):
        raise ValueError("1: a scenario must be a mapping of keys to values")
    return Source(document)


def _plain(node: object) -> object:
    if isinstance(node, CommentedMap):
        return {_plain(key): _plain(value) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        return [_plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    # The scalars of ruamel are subclasses that remember their spelling.
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return str(node)
