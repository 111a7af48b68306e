"""`python -m kctl.reference`: every command's help as one page, docs/kctl.md. A test compares the two."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kctl.cli import root
from kctl.command.noun import LazyGroup
from kctl.command.options import options
from kctl.errors import Exit

_WIDTH = 100
_HEAD = """# kctl

Made from the commands' own help by `make docs`; change it there.
"""
INTRODUCTION = """\
`kctl` operates kafkad and any other Kafka. Names are taken literally; `--match` and `--regex` take patterns. Commands
that change something show the effect and ask for confirmation; `--yes` skips the question, `--dry-run` only shows the
effect. Commands that only add something (create, clone, `acls add`, new users, tokens and contexts) do it at once,
unless the context is protected, and print the command that undoes it. If one of several names is wrong, the others are
still processed and the exit code reports it. Data goes to standard output, everything else to standard error.
"""
EXIT_CODES = {
    Exit.DONE: "success",
    Exit.FAILED: "a broker refused, or several items failed in different ways",
    Exit.USAGE: "the command line is wrong",
    Exit.NOT_FOUND: "a topic, group, broker … does not exist",
    Exit.UNREACHABLE: "no broker answered in time",
    Exit.UNAUTHORIZED: "not authenticated, or not authorized",
    Exit.REFUSED: "refused by kctl itself: an active group, a conflict, or no confirmation",
    Exit.FINDINGS: "done, and problems or differences were found",
    Exit.INTERRUPTED: "interrupted",
}
OTHER_CODES = "`kctl etl` has codes of its own, which docs/etl.md lists."


def page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield from (_HEAD, INTRODUCTION)
    yield "## Options of every command\n"
    context = click.Context(root, info_name="kctl", **root.context_settings)
    for option in options():
        names, text = option.get_help_record(context) or ("", "")
        yield f"- `{names}`: {text}"
    yield "\n## Exit codes\n"
    for code, meaning in EXIT_CODES.items():
        yield f"- {int(code)}: {meaning}"
    yield f"\n{OTHER_CODES}"
    yield from _commands(root, context)


def _commands(group: LazyGroup, above: click.Context) -> Iterator[str]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None  # it is in the group's own table
        context = click.Context(command, info_name=name, parent=above, max_content_width=_WIDTH, terminal_width=_WIDTH)
        path = context.command_path
        if isinstance(command, LazyGroup):
            yield f"\n## {path}\n\n{command.help}"
            yield from _commands(command, context)
        else:
            depth = "###" if isinstance(above.command, LazyGroup) and above.command is not root else "##"
            yield f"\n{depth} {path}\n\n```\n{_without_common(context.get_help())}\n```"


def _without_common(text: str) -> str:
    """They are said once, above."""
    return text.partition("\nOptions of every command")[0].rstrip()


if __name__ == "__main__":
    print(page())
