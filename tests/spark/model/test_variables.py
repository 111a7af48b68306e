from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad_etl.model.variables import Unfilled, Variables
from tests.spark.model.jobs import SMALL, loaded, mistakes

DECLARED = {"day": "2026-11-01", "path": "/lake/${day}", "secret": "x-${env:PW}", "a": "${b}", "b": "${a}", "i": "${i}"}
ENVIRONMENT = {"PW": "hunter2", "HOME": "/home/u", "EMPTY": ""}


def variables(**given: str) -> Variables:
    return Variables(DECLARED, given, ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain $day {day}", "plain $day {day}"),
        ("${day}", "2026-11-01"),
        ("${path}/x", "/lake/2026-11-01/x"),
        ("${day}${day}", "2026-11-012026-11-01"),
        ("$${day}", "${day}"),
        ("${secret}", "x-hunter2"),
        ("${HOME:-./x}", "/home/u"),
        ("${EMPTY:-./x}", "./x"),
        ("${NONE:-./x}", "./x"),
        ("${NONE:-}", ""),
        ("${env:NONE:-x}", "x"),
        ("${env:EMPTY}", ""),
    ],
)
def test_what_a_use_stands_for(text: str, filled: str) -> None:
    assert variables().fill(text).text == filled


def test_given_ones_win() -> None:
    assert variables(day="2026-12-24").fill("${path}").text == "/lake/2026-12-24"
    assert variables(other="1").fill("${other}").text == "1"


def test_what_comes_from_the_environment_is_secret_through_other_variables_too() -> None:
    assert variables().fill("${secret} ${day}").secrets == {"hunter2"}
    assert variables().fill("${HOME:-x} ${env:EMPTY}").secrets == set()


def test_it_is_known_which_variables_of_the_environment_secrets_are_from() -> None:
    found = variables()
    for text in ("${secret}", "${secret}", "${HOME:-x} ${env:EMPTY}"):
        found.fill(text)
    assert found.secret_variables == {"PW", "EMPTY"}


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("${dya}", 'there is no variable "dya"', 'did you mean "day"?'),
        ("${HOME}", 'there is no variable "HOME"', "it is an environment variable: ${env:HOME}"),
        ("${zzzzz}", 'there is no variable "zzzzz"', "declare it in `vars`, or pass --var zzzzz=…"),
        ("${env:NONE}", "the environment variable NONE is not set", "set it: export NONE=…"),
        ("${a}", "variables refer to each other in a circle: a → b → a", None),
        ("${i}", "variables refer to each other in a circle: i → i", None),
        ("${day", "${ has no closing }", "write $${ for a literal ${"),
        ("${}", '"" is not a valid variable name', None),
        ("${a b}", '"a b" is not a valid variable name', None),
    ],
)
def test_what_stands_for_nothing(text: str, wrong: str, hint: str | None) -> None:
    with pytest.raises(Unfilled) as caught:
        variables().fill(text)
    assert caught.value.text == wrong
    assert hint is None or hint in caught.value.hints


@given(st.text(alphabet="${}:-env abPW", max_size=30))
def test_filling_ends_and_leaves_no_use_behind(text: str) -> None:
    try:
        filled = variables().fill(text).text
    except Unfilled:
        return
    assert "${" not in filled.replace("${", "", text.count("$${"))


def test_values_have_the_type_that_they_look_like() -> None:
    job = loaded(
        SMALL + "vars: {n: 5, t: on}\nrun: {stop_after: {rows: '${n}'}, group: 'g${n}'}\ndescription: ${n}\n"
    ).job
    assert job.run.stop_after.rows == 5
    assert job.run.group == "g5"
    assert job.description == "5"


def test_mistakes_have_their_place() -> None:
    assert mistakes(SMALL + "vars: {a: 1}\ndescription: ${b}\n", variables={"nix": "1"}) == [
        'orders.yaml:1: --var nix: the file declares no variable "nix"',
        'orders.yaml:6 description: there is no variable "b"; declare it in `vars`, or pass --var b=…',
    ]


def test_a_number_that_is_unknown_is_told_once() -> None:
    assert len(mistakes(SMALL, "source.rows_per_batch=${b}")) == 1
