"""Partitions as people write them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kafkad.names import TopicPartition


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """orders:0-2,5 payments:1"""
    topics: dict[str, list[int]] = {}
    for where in sorted(partitions):
        topics.setdefault(where.topic, []).append(where.partition)
    return " ".join(f"{topic}:{_numbers(numbers)}" for topic, numbers in topics.items())


def _numbers(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
