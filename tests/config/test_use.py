"""The tables against the code: every name that is asked for is a setting."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kafkad.config import BROKER_SETTINGS

PACKAGE = Path(__file__).parents[2] / "kafkad"
ACCESSORS = {"int", "long", "bool", "double", "str", "list", "value", "is_set"}
ACCESSORS |= {"for_listener", "int_for_listener", "for_mechanism"}


def modules() -> Iterator[ast.Module]:
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "tables":
            yield ast.parse(path.read_text())


def asked_for() -> set[str]:
    return {
        argument.value
        for module in modules()
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ACCESSORS
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and "." in argument.value
    }


def literals() -> set[object]:
    return {node.value for module in modules() for node in ast.walk(module) if isinstance(node, ast.Constant)}


def test_every_setting_that_is_said_to_count_is_used() -> None:
    honoured = {name for name, setting in BROKER_SETTINGS.items() if not setting.unused and not setting.refused}
    assert honoured - literals() == set()


def test_every_name_that_is_asked_for_is_a_setting() -> None:
    assert asked_for() - BROKER_SETTINGS.keys() == set()
