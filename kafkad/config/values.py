"""Text to value and back, as Kafka's ConfigDef does it, with Kafka's complaints."""

from __future__ import annotations

import re
from math import inf

from kafkad.config.setting import INT_MAX, LONG_MAX, ConfigType, Setting, Value

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
"""The decimal numbers among what Java reads as a double: NaN would pass every range."""
_RANGES = {
    ConfigType.SHORT: 2**15 - 1,
    ConfigType.INT: INT_MAX,
    ConfigType.LONG: LONG_MAX,
}


_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def trimmed(text: str) -> str:
    """As Java trims: other blanks than those of ASCII, such as U+00A0, are a part of a name or of a password."""
    return text.strip(_BLANKS)


def parse(setting: Setting, text: str) -> Value:
    """The value that `text` means for this setting. Raises ValueError with Kafka's sentence about name and value."""
    value = _typed(setting, trimmed(text))
    complaint = setting.valid(value) if setting.valid and value is not None else None
    if complaint is None:
        return value
    shown, complaint = ("[hidden]", complaint) if setting.secret else _culprit(setting, value, complaint)
    raise ValueError(f"Invalid value {shown} for configuration {setting.name}: {complaint}")


def _typed(setting: Setting, text: str) -> Value:
    kind = setting.type
    if kind is ConfigType.BOOLEAN:
        return _boolean(setting, text)
    if kind in _RANGES:
        return _whole_number(setting, text, _RANGES[kind])
    if kind is ConfigType.DOUBLE:
        return _floating_point(setting, text)
    if kind is ConfigType.LIST:
        return tuple(map(trimmed, text.split(","))) if text else ()
    return text


def _boolean(setting: Setting, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(
            f"Invalid value {text} for configuration {setting.name}: Expected value to be either true or false"
        )
    return text.lower() == "true"


def _whole_number(setting: Setting, text: str, largest: int) -> int:
    number = int(text) if _INTEGER.fullmatch(text) and len(text) < 25 else None
    if number is None or not -largest - 1 <= number <= largest:
        raise ValueError(
            f"Invalid value {text} for configuration {setting.name}: Not a number of type {setting.type.name}"
        )
    return number


def _floating_point(setting: Setting, text: str) -> float:
    number = float(text.rstrip("dDfF")) if _DOUBLE.fullmatch(text) else inf
    if number in (inf, -inf):
        raise ValueError(f"Invalid value {text} for configuration {setting.name}: Not a number of type DOUBLE")
    return number


def _culprit(setting: Setting, value: Value, complaint: str) -> tuple[str, str]:
    """Kafka blames the one member of a list that is wrong, and prints a whole list in brackets."""
    if not isinstance(value, tuple):
        return text_of(setting.type, value) or "", complaint
    assert setting.valid is not None
    if complaint.startswith("String must"):
        return next(member for member in value if setting.valid((member,))), complaint
    return f"[{', '.join(value)}]", f"{setting.name} {complaint}"


def text_of(kind: ConfigType, value: Value) -> str | None:
    """A value as Kafka prints it in DescribeConfigs."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if kind is ConfigType.DOUBLE:
        return _java_double(float(value))
    return str(value)


def _java_double(value: float) -> str:
    """Java switches to exponents at 10^7 and below 10^-3, and writes them its own way."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        mantissa, _, exponent = _scientific(value)
    digits = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{digits}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str, str]:
    precise = next(text for text in (f"{value:.{n}e}" for n in range(1, 18)) if float(text) == value)
    return precise.partition("e")
