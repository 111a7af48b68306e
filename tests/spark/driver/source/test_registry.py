from __future__ import annotations

import pytest

from kafkad_etl.driver.source.registry import Schemas
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry
from tests.spark.schema_registry import running


def test_unknown_ids_are_asked_for_once() -> None:
    with running() as fake:
        number = fake.add("s", '"long"')
        schemas = Schemas(Registry(url=fake.url), {30: "known"})
        assert schemas.learn([30, number, 31])
        assert schemas.known == {30: "known", number: '"long"'}
        assert not schemas.learn([30, number])
        assert fake.asked == [f"GET /schemas/ids/{number}", "GET /schemas/ids/31"]


def test_a_registry_that_is_away_stops_the_batch_until_it_is_back() -> None:
    schemas = Schemas(Registry(url="http://127.0.0.1:1"), {})
    with pytest.raises(JobFailed) as away:
        schemas.learn([1])
    assert (away.value.failed.kind, away.value.failed.retriable) == ("registry", True)


def test_a_registry_that_denies_ends_the_run() -> None:
    with running() as fake:
        fake.login = "Basic other"
        with pytest.raises(JobFailed, match="401") as denied:
            Schemas(Registry(url=fake.url), {}).learn([1])
        assert not denied.value.failed.retriable
