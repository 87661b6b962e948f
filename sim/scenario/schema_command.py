"""The command `replog sim schema`, which prints the JSON Schema of scenario files."""

from __future__ import annotations

import click

from sim.scenario.schema import schema_text


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema of scenario files, with which an editor completes and checks them.

    A file names it in a comment at its top: `# yaml-language-server: $schema=scenario.json`.
    """
    click.echo(schema_text(), nl=False)
