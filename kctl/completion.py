"""`kctl completion`: the script that a shell sources; completing itself is click's."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kctl.command import KctlCommand

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=KctlCommand)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete kctl's commands.

    \b
    bash:  eval "$(kctl completion bash)"        in ~/.bashrc
    zsh:   eval "$(kctl completion zsh)"         in ~/.zshrc
    fish:  kctl completion fish > ~/.config/fish/completions/kctl.fish
    """
    from kctl.cli import COMPLETE, root

    made_by = get_completion_class(shell)
    assert made_by is not None  # the choice lists those that click has
    click.echo(made_by(root, {}, "kctl", COMPLETE).source())
