"""Real Kafka's answers to every probe in every version, kept in answers.jsonl.

    python -m tests.clients.answers     asks real Kafka 3.9, and 4.3 for the versions that 3.9 does not serve, and
                                        writes the file anew (a long test holds it against them)

One line for each different answer: the API, the question, the versions answered so, and the answer.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.asker import KEYS, Asker, Plain
from tests.clients.probes import ANY, FIRST_VERSION, PROBES, answers
from tests.oracle.kafka import VERSIONS, Kafka

FILE = Path(__file__).with_name("answers.jsonl")

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.initial.task.delay.ms": "3600000",  # else it deletes the records of the probes, old as they are, after 30 s
}

Answers = dict[tuple[str, int], dict[str, Plain]]
"""(API, version) → question → answer."""


def served(asker: Asker) -> list[tuple[str, int]]:
    """The versions of probed APIs that the broker advertises and the probes can ask in."""
    found = []
    for api in PROBES:
        first, last = asker.served.get(KEYS[api], (0, -1))
        found += [(api, version) for version in range(max(first, FIRST_VERSION.get(api, 0)), last + 1)]
    return found


def of_kafka() -> Answers:
    """Asks both real Kafkas; a version is the older one's to answer."""
    found: Answers = {}
    for release in VERSIONS:
        with Kafka(release, settings=SETTINGS, heap="512m") as kafka:
            asker = Asker(kafka.ports[0])
            for api, version in served(asker):
                if (api, version) not in found:
                    answered = answers(asker, api, version)
                    found[api, version] = without_words(answered, all_words=release != VERSIONS[0])
            asker.client.close()
    return found


def without_words(answer: Plain, *, all_words: bool) -> Plain:
    """Leaves open the messages that print a Scala collection, or all of them: those of a later release.

    kafkad says in every version what Kafka 3.9 says. `is_default`, which only v0 of DescribeConfigs has, is left open
    too: Kafka 3.9 says there of every setting that it is no default.
    """
    if isinstance(answer, dict):
        return {
            name: ANY
            if name == "is_default" or (name == "error_message" and (all_words or "ArrayBuffer(" in (value or "")))
            else without_words(value, all_words=all_words)
            for name, value in answer.items()
        }
    return [without_words(item, all_words=all_words) for item in answer] if isinstance(answer, list) else answer


def opened(expected: Plain, answer: Plain) -> Plain:
    """The answer, with whatever is left open in what is expected."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return {name: opened(expected.get(name), value) for name, value in answer.items()}
    if isinstance(expected, list) and isinstance(answer, list) and len(expected) == len(answer):
        return [opened(e, a) for e, a in zip(expected, answer, strict=True)]
    return ANY if expected == ANY else answer


def load() -> Answers:
    found: Answers = {}
    for line in FILE.read_text().splitlines():
        kept = json.loads(line)
        for version in kept["versions"]:
            found.setdefault((kept["api"], version), {})[kept["question"]] = kept["answer"]
    return found


def dump(found: Answers) -> str:
    lines: dict[str, list[int]] = {}
    for (api, version), by_question in sorted(found.items()):
        for question, answer in by_question.items():
            line = json.dumps({"api": api, "question": question, "answer": answer, "versions": []})
            lines.setdefault(line, []).append(version)
    return "".join(line.replace('"versions": []', f'"versions": {versions}') + "\n" for line, versions in lines.items())


def main() -> None:
    FILE.write_text(dump(of_kafka()))


if __name__ == "__main__":
    main()
