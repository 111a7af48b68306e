"""Replication throttle settings as values: what to set for a reassignment, and what to restore afterwards. Pure.

Kafka throttles a replica only where two things are set: a rate at its broker, and the replica's name in a list at its
topic. Leaders are listed for where a copy comes from, followers for where it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkad.names import TopicPartition
from kafkad.wire.primitives import MAX_STRING
from kctl.configs.values import RATES_OF_MOVES
from kctl.errors import Exit, KctlError
from kctl.texts.output import Column, Row
from kctl.texts.spelling import command

*RATES, DIRECTORY_RATE = RATES_OF_MOVES
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
EVERY_REPLICA = "*"

CHANGED = (
    Column("throttle", "A throttle setting that is removed or put back: of which broker or topic."),
    Column("throttle_value", "Its value now.", header="VALUE"),
    Column("throttle_new", "Its value afterwards; none: it is removed.", header="NEW VALUE"),
)
"""The columns of rows that say which throttles a command changes besides what it does."""

BROKER = "broker"
TOPIC = "topic"


class Setting(NamedTuple):
    """One dynamic setting of a broker or a topic."""

    kind: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.owner} {self.name}"


Values = Mapping[Setting, str | None]
"""None: not set."""


def changed_rows(current: Values, new: Values) -> list[Row]:
    """One for each setting that gets another value than it has."""
    return [
        {"throttle": str(setting), "throttle_value": current.get(setting), "throttle_new": value}
        for setting, value in sorted(new.items())
        if current.get(setting) != value
    ]


class Transfer(NamedTuple):
    """A partition on the move: from where it may be copied, where copies go, and who moves it between directories."""

    partition: TopicPartition
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    shifting: tuple[int, ...] = ()


def rates(transfers: Sequence[Transfer], rate: int) -> dict[Setting, str]:
    """On the brokers that give or receive, and no others."""
    copying = {broker for each in transfers if each.targets for broker in (*each.sources, *each.targets)}
    shifting = {broker for each in transfers for broker in each.shifting}
    found = {Setting(BROKER, str(broker), name): str(rate) for broker in sorted(copying) for name in RATES}
    return found | {Setting(BROKER, str(broker), DIRECTORY_RATE): str(rate) for broker in sorted(shifting)}


def lists(transfers: Iterable[Transfer]) -> dict[Setting, str]:
    """On the topics that are copied, with the replicas that take part, and no others."""
    replicas: dict[Setting, list[str]] = {}
    for (topic, partition), sources, targets, _ in sorted(transfers):
        for name, brokers in zip(LISTS, (sources, targets), strict=True):
            if targets:
                names = replicas.setdefault(Setting(TOPIC, topic, name), [])
                names += [f"{partition}:{broker}" for broker in sorted(brokers)]
    return {setting: _listed(names) for setting, names in replicas.items()}


def united(before: str | None, ours: str) -> str:
    """A list of replicas that has those listed before as well: they may be throttled for a reason of their own."""
    if before is None or not before.strip():
        return ours
    if EVERY_REPLICA in (before.strip(), ours):
        return EVERY_REPLICA
    return _listed(dict.fromkeys([*before.split(","), *ours.split(",")]))


def _listed(replicas: Iterable[str]) -> str:
    """All replicas where no request could name so many: of those, only what is copied is throttled either way."""
    text = ",".join(replicas)
    return text if len(text) <= MAX_STRING else EVERY_REPLICA


def left_over(values: Values, transfers: Iterable[Transfer]) -> dict[Setting, str]:
    """Throttles that are set though no move needs them: on brokers and topics that take no part in any."""
    moving = list(transfers)
    topics = {each.partition.topic for each in moving}
    copying = {str(broker) for each in moving for broker in (*each.sources, *each.targets)}
    shifting = {str(broker) for each in moving for broker in each.shifting}

    def needed(setting: Setting) -> bool:
        if setting.kind == TOPIC:
            return setting.owner in topics
        return setting.owner in (shifting if setting.name == DIRECTORY_RATE else copying)

    return {setting: value for setting, value in values.items() if value is not None and not needed(setting)}


def way_back(before: Values, new: Values) -> list[str]:
    """The commands that bring back what was set before, of the settings that are about to change."""
    changing = [setting for setting, value in new.items() if before.get(setting) != value]
    if not any(before.values()):
        return ["partitions throttle clear"]
    rates_before = {before.get(setting) for setting in new if setting.kind == BROKER}
    is_other_rate = all(setting.kind == BROKER and new[setting] is not None for setting in changing)
    if is_other_rate and len(rates_before) == 1 and not rates_before & {None, "0"}:
        return [f"partitions throttle set {rates_before.pop()}"]
    by_owner: dict[tuple[str, str], list[Setting]] = {}
    for setting in changing:
        by_owner.setdefault((setting.kind, setting.owner), []).append(setting)
    commands = []
    for owner, own in by_owner.items():
        back = [f"{setting.name}={before[setting]}" for setting in own if before.get(setting) is not None]
        gone = [setting.name for setting in own if before.get(setting) is None]
        commands += [command("configs set", "/".join(owner), *back)] if back else []
        commands += [command("configs unset", "/".join(owner), *gone)] if gone else []
    return commands


def without(listed: str, partitions: Iterable[int]) -> str | None:
    """A list of replicas less those of some partitions; None if nothing is left of it."""
    numbers = {str(partition) for partition in partitions}
    left = [each for each in listed.split(",") if each.strip() and each.split(":")[0].strip() not in numbers]
    return ",".join(left) or None


class Throttle(NamedTuple):
    """The throttle set for a reassignment and the values there `before`: the content of `plan.json.state`."""

    cluster_id: str
    rate: int
    now: dict[Setting, str]
    before: dict[Setting, str | None]

    def joined(self, others: Throttle | None) -> Throttle:
        """This throttle and that of an earlier run of the plan: the values from before that run are put back."""
        if others is None:
            return self
        return self._replace(now={**others.now, **self.now}, before={**self.before, **others.before})

    def to_restore(self, current: Values) -> tuple[dict[Setting, str | None], list[Setting]]:
        """The values to put back, and the settings to leave alone because somebody else has changed them since."""
        back: dict[Setting, str | None] = {}
        foreign: list[Setting] = []
        for setting, before in self.before.items():
            if setting in current:
                if current[setting] in (self.now.get(setting), before):
                    back[setting] = before
                else:
                    foreign.append(setting)
        return back, foreign


def render_state(throttle: Throttle) -> str:
    from json import dumps

    entries = [
        {**setting._asdict(), "now": throttle.now.get(setting), "before": before}
        for setting, before in throttle.before.items()
    ]
    whole = {"version": 1, "cluster_id": throttle.cluster_id, "rate": throttle.rate, "settings": entries}
    return dumps(whole, ensure_ascii=False, indent=1) + "\n"


def parse_state(text: str, name: str) -> Throttle:
    from json import loads

    try:
        whole: dict[str, Any] = loads(text)
        entries = {Setting(each["kind"], each["owner"], each["name"]): each for each in whole["settings"]}
        return Throttle(
            whole["cluster_id"],
            int(whole["rate"]),
            {setting: each["now"] for setting, each in entries.items()},
            {setting: each["before"] for setting, each in entries.items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        hint = "kctl partitions throttle show says which throttles are set; remove the file to go on without it"
        raise KctlError(f"{name} is not a valid state file: {error}", exit_code=Exit.REFUSED, hints=(hint,)) from None
