"""Loads scenario files. A bad file is refused with `FILE:LINE: what`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from sim.scenario.checks import check_scenario
from sim.scenario.model import Scenario
from sim.scenario.source import Source, parse_yaml
from sim.scenario.steps import (
    VERB_NAMES,
)
from storage.errors import StorageError


class ScenarioError(StorageError):
    """A scenario that cannot be run: the message is `FILE:LINE: what`."""


def scenario_of(values: Mapping[str, object]) -> Scenario:
    """Returns the scenario that a file with these keys would hold. Raises ScenarioError for the first mistake."""
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ScenarioError(f"{where}: {str(problem['msg']).removeprefix('Value error, ')}") from None
    for location, what in check_scenario(scenario):
        raise ScenarioError(f"{'.'.join(map(str, location))}: {what}")
    return scenario


def load_scenario(path: Path | str) -> Scenario:
    """Load a scenario from its file. Raises ScenarioError."""
    return parse_scenario(scenario_text(path), str(path))


def scenario_text(path: Path | str) -> str:
    """Returns the text of a file. Raises ScenarioError if it cannot be read, or is no UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def parse_scenario(text: str, name: str = "scenario.yaml") -> Scenario:
    """Load a scenario from its text; errors name the file `name`. Raises ScenarioError for the first mistake."""
    try:
        source = parse_yaml(text)
    except ValueError as error:
        raise ScenarioError(f"{name}:{error}") from error
    try:
        # A key has one spelling: `for`, not the name of its field.
        scenario = Scenario.model_validate(source.data, by_alias=True, by_name=False)
    except ValidationError as error:
        line, what = min(
            (_explain(dict(problem), source) for problem in error.errors()), key=lambda found: found[0]
        )
        raise ScenarioError(f"{name}:{line}: {what}") from None
    for location, what in check_scenario(scenario):
        raise ScenarioError(f"{name}:{source.line(location)}: {what}")
    return scenario


def _explain(problem: Mapping[str, object], source: Source) -> tuple[int, str]:
    """Returns the line of one finding of pydantic, and the finding in words."""
    location = problem["loc"]
    assert isinstance(location, tuple)
    # The third part is the step's verb, by which pydantic selects the member of the union.
    if len(location) > 2 and location[0] == "steps":
        location = (*location[:2], *location[3:])
    kind, message = problem["type"], str(problem["msg"])
    where = ".".join(str(part) for part in location)
    line = source.line(location)
    if kind == "extra_forbidden":
        return line, f"unknown key {location[-1]!r}"
    if kind == "missing":
        return line, f"{where}: missing"
    if kind == "verb":
        given = problem["input"]
        keys = ", ".join(map(str, given)) if isinstance(given, dict) else repr(given)
        return line, f"{where}: a step has one of {', '.join(VERB_NAMES)}; this one has {keys}"
    return line, f"{where or 'scenario'}: {message.removeprefix('Value error, ')}"
