"""`replog completion`: the script with which a shell completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_REPLOG_COMPLETE"


@click.command("completion", short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print the script with which SHELL completes the commands and options of replog.

    \b
    bash: add to ~/.bashrc    eval "$(replog completion bash)"
    zsh:  add to ~/.zshrc     eval "$(replog completion zsh)"
    fish: run once            replog completion fish > ~/.config/fish/completions/replog.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(context.find_root().command, {}, "replog", _VARIABLE).source())
