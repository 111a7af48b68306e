"""The tables against the code: every name that is asked for is a setting."""

import ast
from functools import cache
from pathlib import Path

from kafkad.config import BROKER_SETTINGS
from kafkad.config.config import PER_MECHANISM

PACKAGE = Path(__file__).parents[2] / "kafkad"
ACCESSORS = {"int", "long", "bool", "double", "str", "list", "value", "is_set"}
OF_A_LISTENER = {"for_listener", "int_for_listener"}
ACCESSORS |= {*OF_A_LISTENER, "for_mechanism", "int_for_mechanism"}


@cache
def nodes() -> tuple[ast.AST, ...]:
    """Of all modules but the tables themselves."""
    modules = (ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py") if path.parent.name != "tables")
    return tuple(node for module in modules for node in ast.walk(module) if isinstance(node, ast.Call | ast.Constant))


def asked_for(accessors: set[str] = ACCESSORS) -> set[str]:
    return {
        argument.value
        for call in nodes()
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in accessors
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and "." in argument.value
    }


def literals() -> set[object]:
    return {node.value for node in nodes() if isinstance(node, ast.Constant)}


def test_every_setting_that_is_said_to_count_is_used() -> None:
    honoured = {name for name, setting in BROKER_SETTINGS.items() if not setting.unused and not setting.refused}
    assert honoured - literals() == set()


def test_every_name_that_is_asked_for_is_a_setting() -> None:
    assert asked_for() - BROKER_SETTINGS.keys() == set()


def test_what_a_mechanism_may_have_for_itself_is_not_asked_of_the_listener_alone() -> None:
    assert {name for name in asked_for(OF_A_LISTENER) if name.startswith(PER_MECHANISM)} == set()
