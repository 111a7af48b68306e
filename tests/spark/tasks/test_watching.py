"""The cluster during a run: end offsets, deleted topics and deleted records, with a simulated Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkad_etl.cluster import ends, presence, topics
from kafkad_etl.errors import EtlExit
from tests.broker import KafkadProcess
from tests.oracle.kafka import free_port
from tests.spark.tasks.runs import BATCH, HELLO, WORK, Run


def test_lag_grows_while_spark_hangs(
    run: Run, topic: str, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "ASK_SECONDS", 0.1)
    port = free_port()
    produce = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "produce", topic]
    produce += ["--file", str(tmp_path / "records")]
    hangs = f"""
from urllib.request import urlopen
subprocess.run({produce}, check=True)
for _ in range(300):
    page = urlopen("http://127.0.0.1:{port}/metrics").read().decode()
    if 'partition="0"}} 3\\n' in page:
        break
    time.sleep(0.1)
open({str(tmp_path / "page")!r}, "w").write(page)
channel.send(Ended("done")); channel.close()
"""
    ran = run(WORK + hangs, "--set", f"run.listen=127.0.0.1:{port}")
    assert ran.code == EtlExit.DONE, ran.err
    page = (tmp_path / "page").read_text().splitlines()
    assert f'kafkad_etl_lag{{job="{topic}",topic="{topic}",partition="0"}} 3' in page
    assert f'kafkad_etl_up{{job="{topic}"}} 1' in page


@pytest.mark.parametrize("on_data_loss", ["fail", "continue"])
def test_a_topic_that_is_deleted_meanwhile_ends_a_run_that_would_wait(
    run: Run, topic: str, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_data_loss: str
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(presence, "GONE_SECONDS", 0.5)
    kctl = [sys.executable, "-m", "kctl", "-b", broker.bootstrap]
    waits = f"""
subprocess.run({kctl} + ["topics", "delete", topic, "-y", "--undo-dir", {str(tmp_path)!r}], check=True)
while channel.stop is None:
    time.sleep(0.01)
channel.send(Ended("stopped"))
channel.close()
"""
    ran = run(WORK + waits, "--mode", "continuous", "--set", f"source.on_data_loss={on_data_loss}")
    assert ran.code == EtlExit.CLUSTER
    assert f"topic {topic} was deleted while the job was running: stopping after the current batch" in ran.err
    assert "failed: 3 rows read" in ran.err
    assert f"error: topic {topic} was deleted while the job was running" in ran.err


def test_a_topic_that_a_run_is_the_first_to_read_is_known_when_it_is_made_again(
    run: Run, topic: str, broker: KafkadProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(presence, "GONE_SECONDS", 0.5)
    new = f"{topic}-new"
    topics = (
        f'subprocess.run([sys.executable, "-m", "kctl", "-b", "{broker.bootstrap}", "topics", verb, "{new}", "-y"])'
    )
    meets = f"""{HELLO}
def kctl(verb):
    {topics}
kctl("create")
topic = "{topic}"
channel.send(Query([]))
channel.send({BATCH.replace("0: 3}}", f'0: 3}}, "{new}": {{0: 0}}}}')})
while "{new}" not in open(channel.plan.checkpoint.removeprefix("file://") + "/job.json").read():
    time.sleep(0.01)
kctl("delete")
kctl("create")
while channel.stop is None:
    time.sleep(0.01)
channel.send(Ended("stopped"))
channel.close()
"""
    ran = run(meets, "--mode", "continuous", "--set", f"source={{pattern: '{topic}.*'}}")
    assert ran.code == EtlExit.CHECKPOINT
    assert f'error: topic "{new}" was deleted and recreated' in ran.err


def test_a_topic_that_may_not_be_seen_any_more_ends_a_run_that_would_go_on_without_it(
    run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(presence, "GONE_SECONDS", 0.05)
    works = tmp_path / "works"
    monkeypatch.setattr(topics, "absent", lambda *_: {topic: "hidden"} if works.exists() else {})
    waits = f"""
open({str(works)!r}, "w").close()
while channel.stop is None:
    time.sleep(0.01)
channel.send(Ended("stopped"))
channel.close()
"""
    ran = run(WORK + waits, "--mode", "continuous")
    assert ran.code == EtlExit.CLUSTER
    assert f'error: topic "{topic}" cannot be seen any more: deleted, or not authorised' in ran.err


def test_records_that_are_deleted_before_a_batch_reads_them_are_counted(
    run: Run, topic: str, broker: KafkadProcess
) -> None:
    kctl = [sys.executable, "-m", "kctl", "-b", broker.bootstrap]
    truncated = f"""{HELLO}
topic = channel.plan.job.source.topics[0]; channel.send(Query([]))
subprocess.run({kctl} + ["topics", "truncate", topic, "--partitions", "0", "--before", "2", "-y"], check=True)
channel.send({BATCH.replace("rows_read=3", "rows_read=1")})
channel.send(Ended("done")); channel.close()
"""
    ran = run(truncated, "--set", "source.on_data_loss=continue")
    gap = f"{topic}-0: 2 records (0-1) deleted before they were read"
    assert (ran.code, f"warning: {gap}; continuing without them" in ran.err) == (EtlExit.DONE, True)
    assert f"  lost: {gap}\n" in ran.err
