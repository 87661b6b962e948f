"""A validator for JSON Schema, of which it knows what our schema uses; a keyword that it does not know is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, final

Schema = dict[str, Any]

_NOTES = frozenset({"$schema", "title", "description", "examples", "definitions"})
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


@final
class Validator:
    """Judges values by one schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def problems(self, value: object) -> list[str]:
        """Returns what is wrong with a value, each with where; empty if the value is valid."""
        return list(self._problems(self._root, value, "the file"))

    def _problems(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        for keyword, wanted in schema.items():
            if keyword in _NOTES:
                continue
            match keyword:
                case "$ref":
                    yield from self._problems(self._definition(wanted), value, where)
                case "anyOf" | "oneOf" | "not":
                    yield from self._combined(keyword, wanted, value, where)
                case "properties" | "additionalProperties" | "propertyNames" | "required" | "minProperties":
                    if isinstance(value, dict):
                        yield from self._of_mapping(keyword, schema, value, where)
                case "items":
                    for number, item in enumerate(value if isinstance(value, list) else ()):
                        yield from self._problems(wanted, item, f"{where}.{number}")
                case _:
                    if not _holds(keyword, wanted, value):
                        yield f"{where}: {value!r} against {keyword} {wanted}"

    def _definition(self, reference: str) -> Schema:
        kind, _, name = reference.removeprefix("#/").partition("/")
        found: Schema = self._root[kind][name]
        return found

    def _combined(self, keyword: str, schemas: Any, value: object, where: str) -> Iterator[str]:
        among = schemas if isinstance(schemas, list) else [schemas]
        fitting = sum(not list(self._problems(each, value, where)) for each in among)
        most = {"anyOf": len(among), "oneOf": 1, "not": 0}[keyword]
        if not (0 if keyword == "not" else 1) <= fitting <= most:
            yield f"{where}: {value!r} fits {fitting} of {keyword}"

    def _of_mapping(self, keyword: str, schema: Schema, value: Schema, where: str) -> Iterator[str]:
        wanted = schema[keyword]
        match keyword:
            case "properties":
                for name in wanted.keys() & value.keys():
                    yield from self._problems(wanted[name], value[name], f"{where}.{name}")
            case "additionalProperties":
                for name in value.keys() - schema.get("properties", {}).keys():
                    if wanted is False:
                        yield f"{where}: unknown key {name}"
                    else:
                        yield from self._problems(wanted, value[name], f"{where}.{name}")
            case "propertyNames":
                for name in value:
                    yield from self._problems(wanted, name, f"{where}: the name {name}")
            case "required":
                yield from (f"{where}: {name} is missing" for name in wanted if name not in value)
            case _:
                assert keyword == "minProperties", keyword
                if len(value) < wanted:
                    yield f"{where}: fewer than {wanted} keys"


def _holds(keyword: str, wanted: Any, value: object) -> bool:
    """Whether a value fulfils a keyword that concerns it alone. Raises AssertionError for an unknown keyword."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    match keyword:
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            return any(_is(value, kind) for kind in kinds)
        case "enum":
            return any(value == each and type(value) is type(each) for each in wanted)
        case "const":
            return bool(value == wanted)
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "minimum":
            return not is_number or value >= wanted
        case "maximum":
            return not is_number or value <= wanted
        case "maxLength":
            return not isinstance(value, str) or len(value) <= wanted
        case _:
            raise AssertionError(f"a keyword that is not known here: {keyword}")


def _is(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind != "integer" or not isinstance(value, bool))
