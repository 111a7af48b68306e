"""`kctl completion`: the script that a shell sources, and what happens when the shell asks.

Click finds what completes a line. The scripts are ours: each shell splits words and inserts what is chosen in its own
way, and a line of what they are told is `type,value`, with a tab and the help behind it where the shell shows help.
A name may be anything that somebody has made up. Zsh and fish quote what they insert; for bash it is quoted here.
"""

from __future__ import annotations

import os
import re

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from kctl.command.verb import KctlCommand
from kctl.errors import KctlError
from kctl.settings import COMPLETION

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

# What stands before the = of --option=value is taken off the word, for the values come back without it.
_ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    (( $+commands[%(prog_name)s] )) || return 1
    local line type value nothing=1
    local -a answer plain described unfinished
    answer=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s 2>/dev/null)}")
    [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
    for line in $answer; do
        type=${line%%%%,*} line=${line#*,} value=${line%%%%$'\\t'*}
        case $type in
            dir) _files -/ && nothing=0 ;;
            file) _files && nothing=0 ;;
            plain)
                if [[ $value == *= ]]; then
                    unfinished+=("$value")
                elif [[ $line == *$'\\t'* ]]; then
                    described+=("${value//:/\\\\:}:${line#*$'\\t'}")
                else
                    plain+=("$value")
                fi ;;
        esac
    done
    (( $#described )) && _describe -V %(prog_name)s described && nothing=0
    (( $#unfinished )) && compadd -S '' -V unfinished -a unfinished && nothing=0
    (( $#plain )) && compadd -V plain -a plain && nothing=0
    return nothing
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

# Fish wants the whole word back, with the option before the = too.
_FISH = """\
function %(complete_func)s
    set -l word (commandline -ct)
    set -l begun (string match -r '^--[^=]+=' -- $word)
    set -l rest (string replace -r '^--[^=]+=' '' -- $word)
    for line in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
            COMP_CWORD="$word" %(prog_name)s 2>/dev/null)
        set -l answer (string split -m 1 , -- $line)
        switch $answer[1]
            case dir
                printf "$begun%%s\\n" (__fish_complete_directories "$rest")
            case file
                printf "$begun%%s\\n" (__fish_complete_path "$rest")
            case plain
                echo "$begun$answer[2]"
        end
    end
end
complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _OnOneLine(ShellComplete):
    """Leaves out names that would be several lines of the answer, or steer the terminal."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return [item for item in super().get_completions(args, incomplete) if str(item.value).isprintable()]


class _Bash(_OnOneLine, BashComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() else words.pop()
        breaks = [at for at, sign in enumerate(incomplete) if sign in os.environ.get("COMP_WORDBREAKS", "=:")]
        self._begun = incomplete[: breaks[-1] + 1] if breaks else ""
        self._in_quotes = _ends_in_quotes(line)
        return words[1:], incomplete

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Between quotes only what needs none: bash does not say which ones it will close."""
        items = super().get_completions(args, incomplete)
        return [item for item in items if not (self._in_quotes and _SPECIAL.search(str(item.value)))]

    def format_completion(self, item: CompletionItem) -> str:
        value = str(item.value).removeprefix(self._begun)
        quoted = _SPECIAL.sub(r"\\\g<0>", value)
        return f"{item.type},{quoted}"


_SPECIAL = re.compile(r"[^\w@%+=:,./-]")
"""What bash may take for more than itself."""


def _ends_in_quotes(line: str) -> bool:
    quote = ""
    signs = iter(line)
    for sign in signs:
        if sign == "\\" and quote != "'":
            next(signs, None)
        elif sign == quote:
            quote = ""
        elif sign in "'\"" and not quote:
            quote = sign
    return bool(quote)


class _Zsh(_OnOneLine, ZshComplete):
    source_template = _ZSH

    def format_completion(self, item: CompletionItem) -> str:
        return _with_help(item)


class _Fish(_OnOneLine, FishComplete):
    source_template = _FISH

    def format_completion(self, item: CompletionItem) -> str:
        return _with_help(item)


def _with_help(item: CompletionItem) -> str:
    text = " ".join((item.help or "").split())
    return f"{item.type},{item.value}\t{text}" if text else f"{item.type},{item.value}"


_SHELLS = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


@click.command("completion", cls=KctlCommand)
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes a shell complete kctl's commands.

    Names of topics, groups, brokers and contexts are completed too; those of a cluster are cached for 30 seconds.

    \b
    bash:  eval "$(kctl completion bash)"        in ~/.bashrc
    zsh:   eval "$(kctl completion zsh)"         in ~/.zshrc, after compinit
    fish:  kctl completion fish > ~/.config/fish/completions/kctl.fish
    """
    click.echo(_SHELLS[shell](context.find_root().command, {}, "kctl", COMPLETION).source())


def complete(root: click.Command, instruction: str) -> int:
    """Answers the shell's completion script. A line that makes no sense yet completes to nothing, without an error."""
    for known in _SHELLS.values():
        add_completion_class(known)
    try:
        return shell_complete(root, {}, "kctl", COMPLETION, instruction)
    except (KctlError, click.ClickException):
        return 1
