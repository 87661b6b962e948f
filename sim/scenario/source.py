"""Parses YAML with line numbers: the plain data of a document, and the line of each of its parts."""

from __future__ import annotations

from typing import final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

Location = tuple[int | str, ...]
# How deep a document may be nested. A scenario needs five levels.
_MOST_DEPTH = 50
_TOO_DEEP = f"1: nested more than {_MOST_DEPTH} levels deep"


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
                # A key that comes from a merge, `<<: *name`, has no line of its own: that of the mapping stays.
                if part in (node.lc.data or ()):
                    line = node.lc.key(part)[0] + 1
            elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
                # A list with a tag of its own, `!tag [1]`, does not know the lines of its parts.
                if part in (node.lc.data or ()):
                    line = node.lc.item(part)[0] + 1
            else:
                break
            node = node[part]
        return line


def parse_yaml(text: str) -> Source:
    """Parse one document. Raises ValueError with `LINE: what`, for example for a duplicate key."""
    try:
        document = YAML(typ="rt").load(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
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
    except (AttributeError, KeyError, TypeError) as error:
        # What ruamel raises for a tag that does not fit its value, such as `!!bool x` and `!!seq x`.
        raise ValueError("1: no YAML: a tag does not fit its value") from error
    if not isinstance(document, CommentedMap):
        raise ValueError("1: a scenario must be a mapping of keys to values")
    return Source(document)


def _plain(node: object, depth: int = 0) -> object:
    """Returns a part of a document without what ruamel remembers. Raises ValueError if it is nested too deeply."""
    if depth > _MOST_DEPTH:
        raise ValueError(_TOO_DEEP)
    if isinstance(node, CommentedMap):
        return {_plain(key, depth + 1): _plain(value, depth + 1) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        return [_plain(value, depth + 1) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    # The scalars of ruamel are subclasses that remember their spelling.
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return str(node)
