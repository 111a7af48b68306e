"""Serves a run's metrics to Prometheus, on the address in `run.listen`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Self

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.reporting.state import State
from kctl.reach.access import addresses

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "kafkad_etl"


class Exporter:
    """An HTTP server in a thread, as a context manager. `state` is called for every scrape."""

    def __init__(
        self, listen: str, job: str, state: Callable[[], State], clock: Callable[[], float] = time.monotonic
    ) -> None:
        from http.server import ThreadingHTTPServer

        ((host, port),) = addresses(listen)
        try:
            self._server: ThreadingHTTPServer = ThreadingHTTPServer(
                (host, port), _handler(lambda: page(job, state(), clock(), time.time()))
            )
        except OSError as error:
            what = f"cannot listen on {listen}: {(error.strerror or str(error)).lower()}"
            hint = "another run may be using it: give each job its own port"
            raise EtlError(what, EtlExit.USAGE, key="run.listen", hints=(hint,)) from error
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, name="exporter", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(render: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    from http.server import BaseHTTPRequestHandler

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "metrics are at /metrics")
                return
            body = render().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Suppresses the log line for each scrape."""

    return Handler


def page(job: str, state: State, now: float, wall: float) -> str:
    """The metrics page. `now` is by the state's clock, `wall` in seconds since 1970."""
    return "".join(f"{line}\n" for line in _lines(job, state, now, wall))


def _lines(job: str, state: State, now: float, wall: float) -> Iterator[str]:
    yield from head("lag", "gauge", "Offsets not read yet, by partition.")
    for topic, spans in sorted(state.spans.items()):
        for partition, span in sorted(spans.items()):
            yield f'{PREFIX}_lag{{job="{job}",topic="{topic}",partition="{partition}"}} {span.lag}'
    ended = None if state.batch_ended is None else wall - (now - state.batch_ended)
    began = wall - (now - state.began)
    lost = sum(gap.records for gap in state.lost)
    runs = state.reading and not state.failed and not state.reason
    numbers: list[tuple[str, str, str, float | None]] = [
        ("start_time_seconds", "gauge", "Start time of this run, in seconds since 1970.", began),
        ("up", "gauge", "1 while the query runs, 0 while Spark starts or after it has ended.", int(runs)),
        ("rows_read_total", "counter", "Rows read by this run.", state.read),
        ("rows_written_total", "counter", "Rows written to the sink.", state.written),
        ("bad_rows_total", "counter", "Rows that could not be parsed.", state.bad),
        ("late_rows_total", "counter", "Rows dropped because they arrived after the watermark.", state.late),
        ("duplicate_rows_total", "counter", "Rows dropped as duplicates.", state.duplicates),
        ("batches_total", "counter", "Committed batches.", state.batches),
        ("failed_batches_total", "counter", "Batches that failed.", state.failures),
        ("retried_batches_total", "counter", "Failed batches that were retried.", state.retries),
        ("lost_records_total", "counter", "Records deleted before they were read.", lost),
        ("open_windows", "gauge", "Groups not written yet.", state.open_groups),
        ("batch_seconds", "gauge", "Duration of the last batch.", state.batch_seconds),
        ("last_batch_timestamp_seconds", "gauge", "Time of the last committed batch, in seconds since 1970.", ended),
    ]
    for name, kind, text, value in numbers:
        if value is not None:
            yield from head(name, kind, text)
            yield (
                f'{PREFIX}_{name}{{job="{job}"}} {value:.3f}'
                if isinstance(value, float)
                else (f'{PREFIX}_{name}{{job="{job}"}} {value}')
            )


def head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}_{name} {text}"
    yield f"# TYPE {PREFIX}_{name} {kind}"
