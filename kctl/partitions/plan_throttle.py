"""The throttle of a plan: set before its first move, removed after the last one, across runs (`plan.json.state`).

The file is written before anything is set, so that whatever happens what was there before is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from kctl.errors import Exit, KctlError
from kctl.partitions.dynamic_settings import read_settings, write_settings
from kctl.partitions.requests import active_moves
from kctl.partitions.throttle_settings import (
    BROKER,
    Setting,
    Throttle,
    Transfer,
    Values,
    changed_rows,
    lists,
    parse_state,
    rates,
    render_state,
    united,
)
from kctl.reach.session import Session
from kctl.texts.output import Row
from kctl.texts.spelling import command, spelled
from kctl.texts.text_files import text_of

_SETTLE_SECONDS = 5.0
"""Brokers take a moment to see a changed setting, and until then tell the old one."""
_LOOK_AGAIN_SECONDS = 0.2
_UNREAD = "?"


class StateFile:
    def __init__(self, plan: str) -> None:
        self.path = f"{plan}.state"

    def read(self) -> Throttle | None:
        try:
            return parse_state(text_of(self.path), self.path)
        except FileNotFoundError:
            return None

    def write(self, throttle: Throttle) -> None:
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            file.write(render_state(throttle))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self.path}.new", self.path)

    def remove(self) -> None:
        if os.path.exists(self.path):
            os.remove(self.path)


class PlanThrottle:
    """The throttle of one plan. `rate` None: that of an earlier run, if there was one."""

    def __init__(
        self,
        session: Session,
        state: StateFile,
        rate: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._state = state
        self._clock = clock
        self._sleep = sleep
        self._throttle = state.read()
        self._missing: dict[Setting, str] = {}
        self._asked = rate
        cluster = session.cluster.cluster_id or ""
        if self._throttle and self._throttle.cluster_id != cluster:
            hint = "use a plan of this cluster, or remove the file"
            what = f"{state.path} is of another cluster, {self._throttle.cluster_id}"
            raise KctlError(what, exit_code=Exit.REFUSED, hints=(hint,))

    @property
    def rate(self) -> int | None:
        return self._asked if self._asked is not None else self._throttle.rate if self._throttle else None

    @property
    def is_set(self) -> bool:
        """True if a run of the plan has set it, and none has taken it off."""
        return self._throttle is not None

    def put_on(self, transfers: Sequence[Transfer]) -> list[int]:
        """The brokers that are down and so were not told; `catch_up` tells them once they are back."""
        if self.rate is None:
            return []
        wanted = rates(transfers, self.rate)
        self._missing = {setting: value for setting, value in wanted.items() if not self._there(setting)}
        self._set({**{setting: value for setting, value in wanted.items() if self._there(setting)}, **lists(transfers)})
        return sorted({int(setting.owner) for setting in self._missing})

    def catch_up(self) -> None:
        """Tells brokers that have come back since."""
        back = {setting: value for setting, value in self._missing.items() if self._there(setting)}
        if back:
            self._missing = {setting: value for setting, value in self._missing.items() if setting not in back}
            self._set(back)

    def _there(self, setting: Setting) -> bool:
        return setting.kind != BROKER or int(setting.owner) in self._session.cluster.brokers

    def _set(self, wanted: Mapping[Setting, str]) -> None:
        before, errors = read_settings(self._session, wanted)
        unread = [setting for setting in wanted if setting not in before]
        if any(setting.kind != BROKER for setting in unread):
            raise errors[0]
        self._missing |= {setting: wanted[setting] for setting in unread}
        now = {
            setting: value if setting.kind == BROKER else united(before[setting], value)
            for setting, value in wanted.items()
            if setting in before
        }
        cluster = self._session.cluster.cluster_id or ""
        self._throttle = Throttle(cluster, self.rate or 0, now, before).joined(self._throttle)
        self._state.write(self._throttle)
        for error in write_settings(self._session, now):
            if error.exit_code != Exit.UNREACHABLE:  # a broker that died just now copies nothing
                raise error
        unsure = self._differing(now)  # the first copies should not outrun their throttle
        self._missing |= {setting: now[setting] for setting in unsure if setting.kind == BROKER}

    def rows(self) -> list[Row]:
        """What `take_off` changes, settings that somebody else has changed since included."""
        if self._throttle is None:
            return []
        current, _ = read_settings(self._session, self._throttle.before)
        return changed_rows(current, {setting: self._throttle.before[setting] for setting in current})

    def take_off(self) -> list[KctlError]:
        """Puts back what was there before; settings that could not be are reported, and kept in the state file."""
        if self._throttle is None:
            return []
        current, unread = read_settings(self._session, self._throttle.before)
        back, foreign = self._throttle.to_restore(current)
        if foreign and not active_moves(self._session):  # it was changed for moves that have ended
            back |= {setting: self._throttle.before[setting] for setting in foreign}
            foreign = []
        errors = [error for error in unread if error.exit_code not in (Exit.UNREACHABLE, Exit.NOT_FOUND)]
        errors += write_settings(self._session, back)
        if not errors and (wrong := self._differing(back)):
            errors.append(_not_off(wrong, "it was put back, and still reads as before"))
        if foreign:
            errors.append(_not_off(foreign, "somebody else changed it meanwhile, and moves are under way"))
        self._forget_but(
            {
                setting: before
                for setting, before in self._throttle.before.items()
                if setting not in current and setting.kind == BROKER
            },
            errors,
        )
        return errors

    def _forget_but(self, left: dict[Setting, str | None], errors: list[KctlError]) -> None:
        """Keeps in the state file what could not be taken off: settings of brokers that are down, for when these are
        back, and all of them where others are left too."""
        assert self._throttle is not None  # take_off has looked
        if not errors and left:
            self._state.write(self._throttle._replace(before=left))
        elif not errors:
            self._state.remove()
        if left:
            errors.append(self._out_of_reach(left))

    def _out_of_reach(self, left: Values) -> KctlError:
        brokers = ",".join(sorted({setting.owner for setting in left}, key=int))
        plan = self._state.path.removesuffix(".state")
        off = spelled(self._session.settings, command("partitions cancel", plan))
        return KctlError(
            f"the throttle of broker {brokers} is still on: it does not answer, and nobody else can change it",
            exit_code=Exit.UNREACHABLE,
            hints=(f"when it is back: {off}",),
        )

    def _differing(self, values: Values) -> list[Setting]:
        """Settings that after a moment still do not read as what was written, or cannot be read."""
        end = self._clock() + _SETTLE_SECONDS
        while True:
            current, _ = read_settings(self._session, values)
            wrong = [setting for setting, value in values.items() if current.get(setting, _UNREAD) != value]
            if not wrong or self._clock() >= end:
                return wrong
            self._sleep(_LOOK_AGAIN_SECONDS)


def _not_off(settings: Sequence[Setting], why: str) -> KctlError:
    names = ", ".join(map(str, settings))
    return KctlError(f"a throttle was not removed: {why}: {names}", hints=("kctl partitions throttle show",))
