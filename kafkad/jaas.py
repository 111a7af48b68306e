"""JAAS lines, `MODULE FLAG NAME="VALUE" …;`, as Kafka reads them: users of PLAIN, and whom a broker logs in as itself.

The grammar is that of Java's StreamTokenizer: words, texts in quotes with backslashes, comments, and numbers, which are
no values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_REFUSED: Final = ("com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule")
_USER: Final = "user_"
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """One entry of JAAS: the Java class, which names the mechanism, and its options."""

    module: str
    options: Mapping[str, str]

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user, of PLAIN's options `user_NAME`."""
        return {name[len(_USER) :]: text for name, text in self.options.items() if name.startswith(_USER)}

    @property
    def username(self) -> str | None:
        """Whom the broker itself logs in as."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")


def parse_jaas(line: str) -> LoginModule:
    """Raises ValueError with Kafka's words, in which no value stands."""
    tokens = _tokens(line)
    entries = [_entry(module, tokens) for module in tokens]
    if not entries:
        raise ValueError("Login module not specified in JAAS config")
    if len(entries) > 1:
        raise ValueError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    if entries[0].module in _REFUSED:
        raise ValueError(
            f"{entries[0].module} is not allowed. Update System property 'org.apache.kafka.disallowed.login.modules'"
            f" to allow {entries[0].module}"
        )
    return entries[0]


class _Token(NamedTuple):
    """A sign has no text, and nor has a number."""

    text: str | None
    sign: str = ""


_END: Final = _Token(None)


def _entry(module: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, _END)
    if flag is _END:
        raise ValueError("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise ValueError("Login module control flag is not available in the JAAS config")
    if flag.text.upper() not in _FLAGS:
        raise ValueError(f"Invalid login module control flag '{flag.text}' in JAAS config")
    options: dict[str, str] = {}
    for name in tokens:
        if name.sign == ";":
            return LoginModule(module.text or "", options)
        value = next(tokens, _END) if next(tokens, _END).sign == "=" else _END
        if value.text is None:
            raise ValueError(_without_value(name.text or "null", len(options)))
        options[name.text or "null"] = value.text
    raise ValueError("JAAS config entry not terminated by semi-colon")


def _without_value(name: str, before: int) -> str:
    """In Kafka's words where the name is one of an option; else it may be the rest of a password behind a quote."""
    if name.startswith(_USER) or name in ("username", "password", "null"):
        return f"Value not specified for key '{name}' in JAAS config"
    why = "quotes in a password need a backslash before them"
    return f"Value not specified in JAAS config, behind {before} options: {why}"


def _tokens(line: str) -> Iterator[_Token]:
    at = 0
    while at < len(line):
        first = line[at]
        if first <= " ":
            at += 1
        elif first == "/":
            at = _after_comment(line, at)
        elif first.isdigit() or first == "." or (first == "-" and line[at + 1 : at + 2] in _DIGITS):
            at = _after_number(line, at)
            yield _Token(None, "0")
        elif _is_word(first):
            start = at
            while at < len(line) and (_is_word(line[at]) or line[at] in _DIGITS):
                at += 1
            yield _Token(line[start:at])
        elif first in "\"'":
            text, at = _quoted(line, at)
            yield _Token(text)
        else:
            at += 1
            yield _Token(None, first)


_DIGITS: Final = frozenset("0123456789.")


def _is_word(sign: str) -> bool:
    return (sign.isascii() and sign.isalpha()) or sign in "-_$" or sign >= "\xa0"


def _after_comment(line: str, at: int) -> int:
    """A single slash begins a comment too."""
    if line.startswith("/*", at):
        end = line.find("*/", at + 2)
        return len(line) if end < 0 else end + 2
    while at < len(line) and line[at] not in "\r\n":
        at += 1
    return at


def _after_number(line: str, at: int) -> int:
    at += line[at] == "-"
    dot = False
    while at < len(line) and (line[at].isdigit() or (line[at] == "." and not dot)):
        dot = dot or line[at] == "."
        at += 1
    return at


def _quoted(line: str, at: int) -> tuple[str, int]:
    """The text, which ends with its quote or with the line, and where it ends."""
    quote, at = line[at], at + 1
    text = []
    while at < len(line) and line[at] not in (quote, "\r", "\n"):
        if line[at] != "\\" or at + 1 == len(line):
            text.append(line[at])
            at += 1
        elif line[at + 1] in "01234567":
            end = at + 2
            most = at + (4 if line[at + 1] <= "3" else 3)
            while end < min(most, len(line)) and line[end] in "01234567":
                end += 1
            text.append(chr(int(line[at + 1 : end], 8)))
            at = end
        else:
            text.append(_ESCAPES.get(line[at + 1], line[at + 1]))
            at += 2
    return "".join(text), at + (at < len(line) and line[at] == quote)
