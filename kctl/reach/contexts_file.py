"""The file of contexts. It holds passwords, so it is its owner's only."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.documents import read_yaml
from kctl.texts.spelling import quote
from kctl.texts.text_files import decoded, opened

OTHERS = "properties"
"""The field of a context with the settings that were imported and say nothing to kctl."""
_PATIENCE_S = 5.0


class Contexts(NamedTuple):
    """`current` is the one that is used when nothing else is said; empty: none."""

    current: str = ""
    contexts: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - values are replaced, never changed

    def get(self, name: str) -> dict[str, Any]:
        if name not in self.contexts:
            known = tuple(self.contexts)
            hints = did_you_mean(name, known) or (f"there are: {', '.join(known) or 'none'}",)
            raise KctlError(f'there is no context "{name}"', exit_code=Exit.NOT_FOUND, hints=hints)
        return self.contexts[name]

    def with_context(self, name: str, fields: Mapping[str, Any]) -> Contexts:
        """The first one becomes the current one."""
        return Contexts(self.current or name, {**self.contexts, name: dict(fields)})

    def without(self, name: str) -> Contexts:
        left = {other: fields for other, fields in self.contexts.items() if other != name}
        return Contexts("" if self.current == name else self.current, left)


def path(environment: Mapping[str, str]) -> str:
    if chosen := environment.get("KCTL_CONFIG"):
        return chosen
    root = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(root, "kctl", "contexts.yaml")


def read(file: str) -> Contexts:
    """No file is an empty one."""
    try:
        with opened(file) as stream:
            _check_mode(file, os.fstat(stream.fileno()).st_mode)
            text = decoded(stream.read(), file)
    except FileNotFoundError:
        return Contexts()
    try:
        document = read_yaml(text)
    except ValueError as error:
        raise KctlError(f"{file} is not YAML: {error}", exit_code=Exit.USAGE) from None
    return _checked(document or {}, file)


def update(file: str, change: Callable[[Contexts], Contexts]) -> tuple[Contexts, Contexts]:
    """The contexts before and after a change, which is made to the file as it is now. Whoever else changes it waits."""
    directory = os.path.dirname(os.path.realpath(file))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)  # not the file, which each change replaces
    try:
        _wait_for(lock, directory)
        before = read(file)
        after = change(before)
        write(file, after)
        return before, after
    finally:
        os.close(lock)


def _wait_for(lock: int, directory: str) -> None:
    """Others take milliseconds; anybody who may read the directory can hold it for longer."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                hint = f"fuser -v {quote(directory)} shows its processes"
                what = f"another process has locked {directory}, and nothing was changed"
                raise KctlError(what, exit_code=Exit.REFUSED, hints=(hint,)) from None
            time.sleep(0.02)
        else:
            return


def write(file: str, contexts: Contexts) -> None:
    """Writes the file in one step, so that a full disk or a Ctrl-C leaves the old one."""
    import yaml

    target = os.path.realpath(file)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    text = yaml.safe_dump({"current": contexts.current, "contexts": contexts.contexts}, sort_keys=False)
    new = f"{target}.{os.getpid()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(new, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def check_name(name: str) -> None:
    """It names a directory too, of what is kept for the shell's completion."""
    if not name or name.startswith((".", "-")) or "/" in name or not name.isprintable():
        raise KctlError(f'"{name}" is not a valid context name', exit_code=Exit.USAGE)


def _check_mode(file: str, mode: int) -> None:
    if mode & 0o077:
        raise KctlError(
            f"{file} can be read by others (mode {mode & 0o777:04o}), and contexts hold passwords",
            exit_code=Exit.REFUSED,
            hints=(f"chmod 600 {file}",),
        )


def _checked(data: Any, file: str) -> Contexts:
    contexts = data.get("contexts") or {} if isinstance(data, dict) else None
    if not isinstance(contexts, dict) or not all(isinstance(fields, dict) for fields in contexts.values()):
        raise KctlError(
            f"{file}: it is not `current: NAME` and `contexts:` with a mapping for each", exit_code=Exit.USAGE
        )
    for name in contexts:
        check_name(str(name))
    return Contexts(str(data.get("current") or ""), {str(name): fields for name, fields in contexts.items()})
