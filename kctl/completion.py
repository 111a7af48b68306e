"""`kctl completion`: the script that a shell sources, and what happens when the shell asks. Most of both is click's."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

from kctl.command import KctlCommand

_SHELLS = ("bash", "zsh", "fish")

# Bash takes host:9092 for three words. So the whole line goes out, and what comes back goes on where its word begins.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' answer type value
    answer=$(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        env %(complete_var)s=bash_complete "$1" 2>/dev/null)
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done <<< "$answer"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() else words.pop()
        breaks = [at for at, sign in enumerate(incomplete) if sign in os.environ.get("COMP_WORDBREAKS", "=:")]
        self._begun = incomplete[: breaks[-1] + 1] if breaks else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{str(item.value).removeprefix(self._begun)}"


@click.command("completion", cls=KctlCommand)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete kctl's commands.

    Names of topics, groups, brokers and contexts are completed too; what a cluster has is remembered for 30 seconds.

    \b
    bash:  eval "$(kctl completion bash)"        in ~/.bashrc
    zsh:   eval "$(kctl completion zsh)"         in ~/.zshrc
    fish:  kctl completion fish > ~/.config/fish/completions/kctl.fish
    """
    from kctl.cli import COMPLETE, root

    add_completion_class(_Bash)
    made_by = get_completion_class(shell)
    assert made_by is not None  # the choice lists those that click has
    click.echo(made_by(root, {}, "kctl", COMPLETE).source())


def complete(instruction: str) -> int:
    """What the shell's script asks for. A line that makes no sense yet completes to nothing, and says nothing."""
    from kctl.cli import COMPLETE, root

    add_completion_class(_Bash)
    try:
        return shell_complete(root, {}, "kctl", COMPLETE, instruction)
    except Exception:
        return 1
