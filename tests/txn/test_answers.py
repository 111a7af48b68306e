"""Wrong, late and odd requests of transactional producers: answered as Kafka 4.3.1 did, or better.

What 4.3.1 does not serve is held against 3.9.2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import KafkadProcess
from tests.clients.asker import KEYS
from tests.txn.questions import QUESTIONS, Question
from tests.txn.raw import COMPACTED, A, Raw

pytestmark = pytest.mark.slow

ANSWERS = Path(__file__).parent.parent / "golden" / "txn" / "answers.jsonl"
NOT_SERVED = "-"

Key = tuple[str, str, int]
Better = tuple[Any, str]
"""Our answer, and why it is not Kafka's."""

AT_ONCE = "fences, ends what is open and answers, where Kafka has the client come back in 100 ms"
IN_SEQUENCE = "a log that was read whole knows that the batches before it are missing"
LOOKS_FIRST = (
    "looks at the topic before it asks the coordinator, which Kafka leaves with a partition of an internal one"
)
EACH_MARKER = "each marker has its own answer; Kafka has one for all of a producer's"
ONLY_OPEN = "what is not open has no duration; Kafka counts from 1970"
TOLD_WHY = "says why for each of both"
NULL_LIST = "a partition with an error has no list of aborted transactions"
FINISHED = "the abort has been written before it is answered, so that its marker counts in the end of the log"

BETTER: dict[tuple[str, str, int], Better] = {
    **{
        ("InitProducerId", "while a transaction is open: first, second answer", version): (
            "NONE pid=new ep=2 | NONE pid=new ep=3",
            AT_ONCE,
        )
        for version in (1, 4)
    },
    ("InitProducerId", "own id and epoch while own transaction is open: first, then until answered", 4): (
        "NONE pid=new ep=1 | NONE pid=new ep=1",
        AT_ONCE,
    ),
    (
        "AddPartitionsToTxn",
        "right after EndTxn was answered, asked at once (100 tries: codes counted)",
        3,
    ): ({"NONE": 100}, AT_ONCE),
    **{
        ("Produce", "first sequence 5 in a transaction", version): ("OUT_OF_ORDER_SEQUENCE_NUMBER", IN_SEQUENCE)
        for version in (9, 10, 11)
    },
    **{
        ("Produce", "to __consumer_offsets by a client", version): (
            [["INVALID_TOPIC_EXCEPTION"], "Empty"],
            LOOKS_FIRST,
        )
        for version in (9, 12)
    },
    ("WriteTxnMarkers", "commit and abort for one producer in one request", 1): (
        [[{"T-0": "NONE"}, {"T-0": "NONE"}], 4],
        EACH_MARKER,
    ),
    **{
        ("ListTransactions", "duration 0 and 10^12: does it list ids with nothing open?", version): (
            [["NONE", False], ["NONE", False], ["NONE", False]],
            ONLY_OPEN,
        )
        for version in (1, 2)
    },
    ("DescribeProducers", "unknown topic, unknown partition, invalid name", 0): (
        [
            ["UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."],
            ["UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."],
            [
                "INVALID_TOPIC_EXCEPTION",
                (
                    "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, "
                    "'.', '_' and '-'"
                ),
            ],
        ],
        TOLD_WHY,
    ),
    ("Fetch", "isolation level 7", 11): (["UNKNOWN_SERVER_ERROR", False, -1, None], NULL_LIST),
    (
        "EndTxn",
        (
            "a commit that comes late, when the next transaction has begun: "
            "answer, state, readable records of the unfinished one"
        ),
        5,
    ): (["PRODUCER_FENCED pid=-1 ep=-1", "Ongoing", 2, 4], FINISHED),
}


def golden() -> dict[Key, Any]:
    rows = map(json.loads, ANSWERS.read_text().splitlines())
    return {
        (row["api"], row["case"], row["version"]): row["4.3.1"] if row["4.3.1"] != NOT_SERVED else row["3.9.2"]
        for row in rows
    }


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path_factory.mktemp("answers")) as process:
        asked = Raw(process.port)
        asked.create(A)
        asked.create(COMPACTED, 1, cleanup_policy="compact")
        asked.coordinator(["x"], 1)
        asked.coordinator(["x"], 0)
        asked.close()
        yield process


@pytest.fixture
def raw(kafkad: KafkadProcess) -> Iterator[Raw]:
    asked = Raw(kafkad.port)
    asked.know(A, COMPACTED)
    yield asked
    asked.close()


def asked() -> list[Any]:
    wanted = golden()
    return [
        pytest.param(question, version, wanted[question.api, question.text, version], id=f"{question.text} {version}")
        for question in QUESTIONS
        for version in question.versions
        if (question.api, question.text, version) in wanted
    ]


@pytest.mark.parametrize(("question", "version", "wanted"), asked())
def test_the_answer_is_kafkas(raw: Raw, question: Question, version: int, wanted: Any) -> None:
    first, last = raw.served[KEYS[question.api]]
    found = _plain(question.ask(raw, version), _named) if first <= version <= last else NOT_SERVED
    better = BETTER.get((question.api, question.text, version))
    assert found == (_plain(wanted, _without_text) if better is None else better[0])
    assert better is None or found != _plain(wanted, _without_text), "no longer better than Kafka's"


def test_every_answer_has_its_question() -> None:
    assert {(q.api, q.text, version) for q in QUESTIONS for version in q.versions} >= golden().keys()
    assert BETTER.keys() <= golden().keys()


def _plain(answer: Any, text: Callable[[str], str]) -> Any:
    """As JSON has it."""
    if isinstance(answer, dict):
        return {text(key): _plain(value, text) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [_plain(each, text) for each in answer]
    return text(answer) if isinstance(answer, str) else answer


def _named(text: str) -> str:
    """Topics of its own have another name each time."""
    return "T-0" if text.startswith("hp-") else text


def _without_text(text: str) -> str:
    """Produce says why, in words of its own."""
    return text.partition(" [")[0]
