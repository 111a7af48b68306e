"""Replica placement: the moves that reach a goal. Pure and deterministic.

A replica stays unless its broker is drained, its rack is held twice, or its place is needed. Only then counts where a
new one goes: to another rack; where it fits; where its topic, and then all topics, have the fewest replicas. A new
replica takes the position of the one that it replaces, and the first position, which leads, is chosen last: to change
the order costs nothing, but a partition whose leader may stay keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kctl.partitions.balance import even_leaders, even_replicas
from kctl.partitions.cluster_model import Broker, ClusterModel, Goal, Partition
from kctl.texts.output import counted, size_text


class Copy(NamedTuple):
    source: int
    target: int
    size: int


class Move(NamedTuple):
    """A partition's planned replicas; `planned` is None if there are none, and `help` then says what would help."""

    partition: Partition
    planned: tuple[int, ...] | None
    why: tuple[str, ...]
    help: str = ""

    @property
    def copies(self) -> list[Copy]:
        partition = self.partition
        if self.planned is None or partition.leader is None:
            return []
        added = [broker for broker in self.planned if broker not in partition.replicas]
        return [Copy(partition.leader, broker, partition.size) for broker in added]

    @property
    def copy_bytes(self) -> int:
        return sum(copy.size for copy in self.copies)


class Impossible(Exception):
    def __init__(self, why: str, what_helps: str) -> None:
        super().__init__(why)
        self.why = why
        self.help = what_helps


def planned_moves(brokers: Iterable[Broker], partitions: Sequence[Partition], goal: Goal) -> list[Move]:
    """The partitions that change, and those that should but cannot, in the order of their names."""
    model = ClusterModel(brokers, partitions)
    chosen = [at for at, each in enumerate(partitions) if goal.topics is None or each.topic in goal.topics]
    refused: dict[int, Impossible] = {}
    for at in sorted(chosen, key=lambda at: (-partitions[at].size, partitions[at].name)):  # large ones fit worst
        try:
            model.put(at, _required(model, at, goal))
        except Impossible as impossible:
            refused[at] = impossible
    movable = [at for at in chosen if at not in refused]
    if goal.balance in ("count", "bytes"):
        even_replicas(model, movable, model.receivers(goal), goal)
    if goal.balance:
        even_leaders(model, movable, model.receivers(goal._replace(to=frozenset())))
    moves = [_move(model, at, goal, refused.get(at)) for at in chosen]
    return sorted((move for move in moves if move.why), key=lambda move: move.partition.name)


def _required(model: ClusterModel, at: int, goal: Goal) -> list[int]:
    """The replicas that the goal asks of one partition, balance apart."""
    partition = model.partitions[at]
    staying = [broker for broker in partition.replicas if _may_stay(broker, goal)]
    wanted = replicas_wanted(partition, goal)
    while len(staying) > wanted:
        staying.remove(_most_dispensable(model, staying))
    planned: list[int | None] = [broker if broker in staying else None for broker in partition.replicas]
    while len(planned) > wanted:  # nothing takes the place of a drained replica where fewer are wanted
        planned.reverse()
        planned.remove(None)
        planned.reverse()
    planned += [None] * (wanted - len(planned))
    if goal.repairs_racks:
        planned = _without_rack_mates(model, at, planned, goal)
    return _filled(model, at, planned, goal)


def replicas_wanted(partition: Partition, goal: Goal) -> int:
    """A drain of everything keeps replication as it is: there `rf` is the most for what has to leave a broker."""
    now = len(partition.replicas)
    if goal.rf is None:
        return now
    if goal.drain and goal.topics is None:
        return now if goal.drain.isdisjoint(partition.replicas) else min(now, goal.rf)
    return goal.rf


def _may_stay(broker: int, goal: Goal) -> bool:
    return broker not in goal.drain and not (goal.exclusive and broker not in goal.to)


def _most_dispensable(model: ClusterModel, replicas: Sequence[int]) -> int:
    """The replica to give up: one that is down, shares its rack, or is on the fullest broker; the first comes last."""
    racks = Counter(model.rack(broker) for broker in replicas)

    def worth(broker: int) -> tuple[bool, bool, int, int]:
        return (model.alive(broker), racks[model.rack(broker)] == 1, -model.counts[broker], -broker)

    return min(replicas[1:], key=worth)


def _without_rack_mates(model: ClusterModel, at: int, planned: list[int | None], goal: Goal) -> list[int | None]:
    """The replicas, with None for each whose rack has too many while another rack has a broker."""
    limit = model.rack_limit(len(planned))
    for position in range(len(planned) - 1, -1, -1):
        broker = planned[position]
        held = Counter(model.rack(other) for other in planned if other is not None)
        if broker is None or held[model.rack(broker)] <= limit:
            continue
        without = [*planned[:position], None, *planned[position + 1 :]]
        if any(held[model.rack(other)] < limit for other in _candidates(model, at, without, goal)):
            planned = without
        elif goal.racks == "strict":
            raise Impossible(f"no broker outside {model.rack(broker)} can take a replica", "--rack-aware prefer")
    return planned


def _candidates(model: ClusterModel, at: int, planned: Sequence[int | None], goal: Goal) -> list[int]:
    return [broker for broker in model.receivers(goal) if broker not in planned and model.fits(at, broker)]


def _filled(model: ClusterModel, at: int, planned: Sequence[int | None], goal: Goal) -> list[int]:
    """The replicas, with a broker in each empty place."""
    partition = model.partitions[at]
    filled: list[int | None] = list(planned)
    if None in filled and partition.leader is None:
        down = ",".join(str(broker) for broker in partition.replicas if not model.alive(broker))
        raise Impossible("it has no leader to copy from", f"start broker {down}" if down else "elect a leader")
    for position, broker in enumerate(filled):
        if broker is None:
            filled[position] = _best(model, at, filled, goal)
    result = [broker for broker in filled if broker is not None]
    if planned[0] is None and len(result) > 1:
        result.insert(0, result.pop(_leader(model, partition.topic, result)))
    return result


def _best(model: ClusterModel, at: int, planned: Sequence[int | None], goal: Goal) -> int:
    topic = model.partitions[at].topic
    held = Counter(model.rack(broker) for broker in planned if broker is not None)
    candidates = _candidates(model, at, planned, goal)
    if not candidates:
        raise _too_few(model, at, planned, goal)
    if goal.racks == "strict":
        limit = model.rack_limit(len(planned))
        candidates = [broker for broker in candidates if held[model.rack(broker)] < limit]
        if not candidates:
            raise Impossible(f"every rack left holds {limit} of its replicas already", "--rack-aware prefer")

    def cost(broker: int) -> tuple[int, ...]:
        mates = 0 if goal.racks == "off" else held[model.rack(broker)]
        return (mates, model.topic_counts[topic][broker], model.counts[broker], model.bytes[broker], broker)

    return min(candidates, key=cost)


def _too_few(model: ClusterModel, at: int, planned: Sequence[int | None], goal: Goal) -> Impossible:
    able = model.receivers(goal)
    usable = {broker for broker in planned if broker is not None} | set(able)
    if len(usable) < len(planned):
        what_helps = f"--rf {len(usable)} or --skip"
        if not usable or goal.exclusive:
            what_helps = "start a broker, or name others with --to" + (", or --skip" if usable else "")
        remain = "1 remains" if len(usable) == 1 else f"{len(usable)} remain"
        return Impossible(f"RF {len(planned)} needs {counted(len(planned), 'broker')}, {remain}", what_helps)
    rooms = [room for broker in able if broker not in planned and (room := model.room(broker)) is not None]
    what = f"needs {size_text(model.partitions[at].size)}, and no broker has more than {size_text(max(rooms))} free"
    return Impossible(what, "free space, or name other brokers with --to")


def _leader(model: ClusterModel, topic: str, replicas: Sequence[int]) -> int:
    """The position of the replica to lead: of those alive the one whose broker leads least."""

    def cost(position: int) -> tuple[bool, int, int, int]:
        broker = replicas[position]
        return (not model.alive(broker), model.topic_leaders[topic][broker], model.leaders[broker], position)

    return min(range(len(replicas)), key=cost)


def _move(model: ClusterModel, at: int, goal: Goal, refused: Impossible | None) -> Move:
    partition = model.partitions[at]
    if refused:
        return Move(partition, None, (refused.why,), refused.help)
    planned = model.replicas[at]
    return Move(partition, planned, _reasons(model, partition, planned, goal))


def _reasons(model: ClusterModel, partition: Partition, planned: tuple[int, ...], goal: Goal) -> tuple[str, ...]:
    """The reasons that the replicas change; empty if they do not."""
    now = partition.replicas
    if planned == now:
        return ()
    reasons = []
    gone = [broker for broker in now if broker not in planned]
    if drained := [str(broker) for broker in gone if broker in goal.drain]:
        reasons.append(f"broker {','.join(drained)} drained")
    if len(planned) != len(now):
        reasons.append(f"RF {len(now)} -> {len(planned)}")
    racks = Counter(map(model.rack, now))
    others = [broker for broker in gone if broker not in goal.drain]
    if len(planned) >= len(now) and others:
        reasons.append(_reason_to_leave(model, others, racks, goal))
    if planned[0] != now[0]:
        reasons.append(f"leader {now[0]} -> {planned[0]}")
    elif not reasons:
        reasons.append("order")
    return tuple(reasons)


def _reason_to_leave(model: ClusterModel, gone: Sequence[int], racks: Counter[str], goal: Goal) -> str:
    if goal.exclusive:
        return f"to {','.join(map(str, sorted(goal.to)))}"
    if goal.repairs_racks and (doubled := [model.rack(broker) for broker in gone if racks[model.rack(broker)] > 1]):
        return f"{doubled[0]} held {racks[doubled[0]]} replicas"
    return "evens out brokers"
