"""The JSON Schema of scenario files, from the models that read them, for editors and validators.

It refuses what a file shows by its form: unknown keys, wrong units, a step with two verbs. Which topics, brokers and
names there are, and values that are too large, only `parse_scenario` sees. It is stricter in one way: a whole number in
quotes is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, final

from pydantic.json_schema import GenerateJsonSchema

from sim.buggify.points import POINTS
from sim.scenario.checks import METHODS
from sim.scenario.model import Scenario
from sim.scenario.settings import setting_names
from sim.scenario.steps import BROKER_JOBS, OF_METHODS, VERBS
from sim.scenario.topic_checks import LASTING_PROPERTIES
from storage.config import LogConfig
from storage.topics import MAX_TOPIC_LENGTH

Schema = dict[str, Any]

# The version that all editors know.
_DIALECT = "http://json-schema.org/draft-07/schema#"
_DEFINITIONS = "definitions"
_PROPERTY = {"type": ["integer", "string", "boolean"]}


@final
class _Generator(GenerateJsonSchema):
    """Pydantic's generator, without a title for each key, and without defaults, which are parsed values."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def default_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])


def scenario_schema() -> Schema:
    """Returns the JSON Schema (draft-07) of a scenario file."""
    schema = Scenario.model_json_schema(
        ref_template=f"#/{_DEFINITIONS}/{{model}}", schema_generator=_Generator
    )
    definitions: Schema = schema.pop("$defs")
    _name_what_code_knows(definitions)
    for kind in VERBS:
        definitions[kind.__name__]["not"] = {"required": ["at", "when"]}
    schema["properties"]["topics"]["propertyNames"] = {
        "pattern": r"^[a-zA-Z0-9._-]+$",
        "maxLength": MAX_TOPIC_LENGTH,
    }
    head = {"$schema": _DIALECT, "title": "A scenario of replog"}
    return (
        head | {name: part for name, part in schema.items() if name != "title"} | {_DEFINITIONS: definitions}
    )


def schema_text() -> str:
    """Returns the schema as the file `scenarios/schema.json` has it."""
    return json.dumps(scenario_schema(), indent=1) + "\n"


def _name_what_code_knows(definitions: Schema) -> None:
    """Name the keys and values that only the code lists, so that an editor completes them."""
    cluster, kill = definitions["ClusterModel"]["properties"], definitions["Kill"]["properties"]
    _allow_only(cluster["settings"], setting_names(), {"type": "integer"})
    _allow_only(cluster["jobs"], BROKER_JOBS, cluster["jobs"]["additionalProperties"])
    properties = list(LogConfig().to_properties())
    _allow_only(definitions["TopicModel"]["properties"]["config"], properties, _PROPERTY)
    changeable = [name for name in properties if name not in LASTING_PROPERTIES]
    _allow_only(definitions["AlterTopic"]["properties"]["config"], changeable, _PROPERTY)
    definitions["BuggifyModel"]["properties"]["points"]["items"]["enum"] = list(POINTS)
    points = [f"{side} {job}" for job in BROKER_JOBS for side in ("before", "after")]
    method = {"type": "string", "enum": list(METHODS)}
    for kind in OF_METHODS:
        only = definitions[kind.__name__]["properties"]["only"]
        only["anyOf"] = [method, {"type": "array", "items": method}]
    kill["point"]["anyOf"][0] = {"type": "string", "enum": points}


def _allow_only(mapping: Schema, names: Iterable[str], value: Schema) -> None:
    """Let a mapping have these keys only."""
    mapping["properties"] = {name: value for name in names}
    mapping["additionalProperties"] = False
