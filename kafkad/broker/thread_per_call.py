"""Calls that wait for somebody else, such as an issuer of tokens, a KDC or a name server."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPerCall(Executor):
    """Each call has a thread of its own: it waits for no other, and neither the disks nor the end of the process wait
    for it. One for which no thread can be started has failed (OSError), as if nobody had answered."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        answer: Future[T] = Future()

        def ask() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(call(*args, **kwargs))
            except BaseException as error:
                answer.set_exception(error)

        try:
            Thread(target=ask, name="blocking call", daemon=True).start()
        except RuntimeError as error:
            answer.set_exception(OSError(errno.EAGAIN, f"no thread for it: {error}"))
        return answer
