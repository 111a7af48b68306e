from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Batch, Ends, Failed, Query, Retrying
from kafkad_etl.reporting.exporter import Exporter, page
from kafkad_etl.reporting.state import State, advance, begin
from tests.oracle.kafka import free_port


def state() -> State:
    batch = Batch(
        batch=0,
        start={"orders": {0: 0}},
        end={"orders": {0: 60}},
        latest={"orders": {0: 100}},
        rows_read=60,
        rows_written=57,
        bad=3,
        late=2,
        seconds=1.5,
    )
    return advance(begin(100.0, {"orders": {0: 0}}, {"orders": {0: 100}}), batch, 105.0)


def test_a_page_has_lag_rows_and_the_last_batch() -> None:
    lines = page("j", state(), 107.0, 1_000_000.0).splitlines()
    assert 'kafkad_etl_lag{job="j",topic="orders",partition="0"} 40' in lines
    assert 'kafkad_etl_rows_read_total{job="j"} 60' in lines
    assert 'kafkad_etl_bad_rows_total{job="j"} 3' in lines
    assert 'kafkad_etl_late_rows_total{job="j"} 2' in lines
    assert 'kafkad_etl_batch_seconds{job="j"} 1.500' in lines
    assert 'kafkad_etl_last_batch_timestamp_seconds{job="j"} 999998.000' in lines
    assert "# TYPE kafkad_etl_lag gauge" in lines
    assert 'kafkad_etl_start_time_seconds{job="j"} 999993.000' in lines
    assert not any("last_batch" in line for line in page("j", begin(0, {}, {}), 1, 2).splitlines())


def metric(name: str, of: State) -> str:
    (line,) = (line for line in page("j", of, 107.0, 0.0).splitlines() if line.startswith(f"kafkad_etl_{name}{{"))
    return line.rpartition(" ")[2]


def test_it_says_whether_the_query_runs_and_how_often_a_batch_failed() -> None:
    found = state()
    assert metric("up", found) == "0"
    found = advance(found, Query(columns=[]), 105.0)
    assert (metric("up", found), metric("failed_batches_total", found)) == ("1", "0")
    found = advance(found, Retrying(text="Connection refused", seconds=10, attempt=1, most=3), 106.0)
    assert (metric("failed_batches_total", found), metric("retried_batches_total", found)) == ("1", "1")
    found = advance(found, Failed(kind="spark", text="no"), 107.0)
    assert (metric("up", found), metric("failed_batches_total", found)) == ("0", "2")


def test_lag_grows_while_spark_says_nothing() -> None:
    found = advance(state(), Ends(ends={"orders": {0: 500}, "others": {0: 9}}), 106.0)
    assert metric("lag", found) == "440"


def test_it_is_served_until_it_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with Exporter(f"127.0.0.1:{port}", "j", state):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b'kafkad_etl_rows_written_total{job="j"} 57' in answer.read()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other")
        refused.value.close()
        with pytest.raises(EtlError) as taken:
            Exporter(f"127.0.0.1:{port}", "j", state)
        assert taken.value.exit_code == EtlExit.USAGE
        taken.value.locate(lambda key: f"orders.yaml:9 {key}")
        assert (
            f"orders.yaml:9 run.listen: cannot listen on 127.0.0.1:{port}: address already in use" in taken.value.what
        )
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    assert capfd.readouterr().err == ""
