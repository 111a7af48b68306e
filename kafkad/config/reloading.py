"""A configuration file that is read again while brokers run: what is taken from it, and what is kept of it for brokers
that are started later."""

from __future__ import annotations

from collections.abc import Callable

from kafkad.config.checks import contradictions
from kafkad.config.config import Config, Reload
from kafkad.config.files import ConfigError
from kafkad.config.load import content_of_file


def reread(static: Config, fresh: Config, in_force: Config, *, among_others: bool = False) -> Reload:
    """What may change while a broker runs goes into `static`; `in_force` is that with the dynamic settings. Raises
    ConfigError if it contradicts what stays as it is."""
    reload, merged = static.with_file(fresh), in_force.with_file(fresh).config
    known = contradictions(in_force, among_others=among_others)
    problems = [each for each in contradictions(merged, among_others=among_others) if each not in known]
    if problems and reload.restart:
        names = ", ".join(reload.restart)
        raise ConfigError(f"it can only be taken as a whole, with a restart, for {names} cannot change", *problems)
    if problems:
        raise ConfigError(*problems)
    return reload


class KeptFile:
    """The file of several brokers, as it was at their start and when it was taken again last. One that is started later
    begins with `contents`: the file may have been changed since for the next restart of all of them."""

    def __init__(self, path: str | None, parse: Callable[[bytes | None], Config]) -> None:
        """Without a path there is no file. Raises ConfigError."""
        self._path = path
        self._parse = parse
        content = None if path is None else content_of_file(path)
        self.config = parse(content)
        self.contents: list[bytes] = [] if content is None else [content]

    def read_again(self) -> None:
        """Raises ConfigError and keeps what it has where the running brokers would not take it."""
        if self._path is not None:
            content = content_of_file(self._path)
            self.config = reread(self.config, self._parse(content), self.config).config
            self.contents = [self.contents[0], content]


def begun(contents: list[bytes], parse: Callable[[bytes | None], Config]) -> Config:
    """The configuration of a broker that begins with what was kept."""
    config = parse(contents[0])
    for content in contents[1:]:
        config = reread(config, parse(content), config, among_others=True).config
    return config
