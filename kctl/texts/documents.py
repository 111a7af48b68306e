"""Reads documents of YAML and JSON that people write. A ValueError says in one line why a text is none."""

from __future__ import annotations

from typing import Any

_TOO_DEEP = "it is nested too deeply"
_TOO_LONG = "a number in it has thousands of digits"


def read_json(text: str) -> Any:
    from json import JSONDecodeError, loads

    try:
        return loads(text)
    except JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError:  # Python's limit
        raise ValueError(_TOO_LONG) from None


def read_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:  # of a date that there is not, or Python's limit
        raise ValueError(_TOO_LONG if "set_int_max_str_digits" in str(error) else str(error)) from None
