"""A scenario as plain data, as its file has it, and edits that make it simpler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from sim.scenario.checks import check_scenario
from sim.scenario.loading import ScenarioError, parse_scenario, scenario_text
from sim.scenario.model import Scenario
from sim.scenario.source import parse_yaml

Data = dict[str, Any]
# The keys and indexes that lead to a part of the data.
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One part of the data that gets a value, or is deleted."""

    path: Path_
    value: Any = None
    deletes: bool = False


Edit = tuple[Change, ...]
_DELETED = object()


def deleted(*path: str | int) -> Edit:
    """Returns the edit that deletes one part."""
    return (Change(path=path, deletes=True),)


def changed(value: object, *path: str | int) -> Edit:
    """Returns the edit that sets one part to a value."""
    return (Change(path=path, value=value),)


def read_data(path: Path) -> Data:
    """Returns the data of a scenario file. Raises ScenarioError for a file that cannot be run."""
    # Read once: a pipe has nothing more to say.
    text = scenario_text(path)
    parse_scenario(text, str(path))
    data = parse_yaml(text).data
    assert isinstance(data, dict), type(data)
    return data


def part(data: Data, path: Path_) -> Any:
    """Returns the part of the data at `path`, None if there is none."""
    node: Any = data
    for key in path:
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return None
    return node


def apply(data: Data, edits: Iterable[Edit]) -> Data:
    """Returns a copy of the data with all edits. Indexes count in `data`; an edit of a part that is deleted is void."""
    result = deepcopy(data)
    for edit in edits:
        for change in edit:
            _change(result, change)
    swept: Data = _swept(result)
    _drop_empty(swept)
    return swept


def _change(data: Data, change: Change) -> None:
    node: Any = data
    for key in change.path[:-1]:
        if isinstance(node, dict):
            node = node.setdefault(key, {})
        elif isinstance(node, list):
            node = node[int(key)]
        else:
            return
    if node is _DELETED:
        return
    last: Any = change.path[-1]
    if not change.deletes:
        node[last] = change.value
    elif isinstance(node, list) or last in node:
        node[last] = _DELETED


def _swept(node: Any) -> Any:
    """Returns a part of the data without what is deleted."""
    if isinstance(node, dict):
        return {key: _swept(value) for key, value in node.items() if value is not _DELETED}
    if isinstance(node, list):
        return [_swept(value) for value in node if value is not _DELETED]
    return node


# The mappings that mean the same if they are left out, inner ones first.
_MAPPINGS: tuple[Path_, ...] = (
    ("cluster", "settings"),
    ("cluster", "disk"),
    ("cluster", "clocks"),
    ("cluster", "jobs"),
    ("cluster",),
    ("network",),
)


def _drop_empty(data: Data) -> None:
    for path in _MAPPINGS:
        if part(data, path) == {}:
            del part(data, path[:-1])[path[-1]]


def scenario_of(data: Data) -> Scenario | None:
    """Returns the scenario of the data; None if it cannot be run."""
    try:
        scenario = Scenario.model_validate(data)
    except (ValidationError, ScenarioError):
        return None
    return None if any(check_scenario(scenario)) else scenario


def tidied(data: Data) -> Data | None:
    """Returns the data without the steps and clients that mean something that is no longer there.

    Returns None if even then it cannot be run.
    """
    while True:
        try:
            findings = list(check_scenario(Scenario.model_validate(data)))
        except (ValidationError, ScenarioError):
            return None
        if not findings:
            return data
        # Each edit takes something away or lowers it, so this ends.
        edit = _mended(data, findings[0][0])
        if edit is None:
            return None
        data = apply(data, [edit])


def _mended(data: Data, location: Sequence[str | int]) -> Edit | None:
    """Returns the edit that takes away what is wrong at a place of the data; None if nothing there can go."""
    match tuple(location):
        case ("steps" | "producers" | "consumers" | "seekers" | "admins" as key, int(index), *_):
            return deleted(str(key), index)
        case ("topics", str(name), "replicas"):
            brokers = part(data, ("cluster", "brokers"))
            return changed(3 if brokers is None else brokers, "topics", name, "replicas")
        case _:
            return None


def neat(data: Data) -> Data:
    """Returns the data of the same scenario without the keys that have their defaults."""
    scenario = scenario_of(data)
    assert scenario is not None, data
    for path in sorted(_paths(data), key=len, reverse=True):
        without = apply(data, [deleted(*path)])
        if scenario_of(without) == scenario:
            data = without
    return data


def _paths(node: Any, above: Path_ = ()) -> Iterator[Path_]:
    """Yields the paths to all members of mappings."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            yield from _paths(each, (*above, index))
    elif isinstance(node, dict):
        for key, each in node.items():
            yield (*above, key)
            yield from _paths(each, (*above, key))


def key_of(data: Data) -> str:
    """Returns a text that is the same for the same data."""
    return json.dumps(data, sort_keys=True)


def as_yaml(data: Data, head: Sequence[str] = ()) -> str:
    """Returns the data as a file that `replog sim run` takes, after comments with the lines of `head`."""
    text = StringIO()
    for line in head:
        text.write(f"# {line}".rstrip() + "\n")
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    yaml.dump(data, text)
    return text.getvalue()
