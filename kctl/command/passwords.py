"""Secrets that are typed, or come by standard input."""

from __future__ import annotations

import sys

import click

from kctl.errors import Exit, KctlError
from kctl.texts.text_files import in_utf8


def given_secret(prompt: str, what: str = "password", *, twice: bool = False) -> str:
    """What is typed on the terminal, or the first line of standard input. KctlError if it is not UTF-8, in which
    secrets are sent."""
    try:
        if sys.stdin.isatty():
            given: str = click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
        else:
            given = sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise KctlError(f"the {what} is not UTF-8", exit_code=Exit.USAGE) from None
    return in_utf8(given, f"the {what}")
