from __future__ import annotations

from kafkad_etl.driver.source.framing import reasons, why
from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.job import Registry


def test_without_a_registry_a_value_is_at_fault_if_it_is_null() -> None:
    assert list(reasons("value", None)) == [("value IS NULL", "'it is null'")]


def test_of_a_registered_value_the_first_reason_is_that_it_is_null() -> None:
    tests = list(reasons("value", Schemas(Registry(url="http://r"), "avro", {7: "long"})))
    assert tests[0] == ("value IS NULL", "'it is null'")
    assert tests[-1][0].endswith(" NOT IN (7)")


def test_a_reason_is_the_first_that_is_true() -> None:
    assert why([("a", "'x'"), ("b", "'y'")], "other") == (
        "CASE WHEN a THEN named_struct('column', '', 'why', 'x') "
        "WHEN b THEN named_struct('column', '', 'why', 'y') ELSE other END"
    )
