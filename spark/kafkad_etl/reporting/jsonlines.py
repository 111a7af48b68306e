"""Reporter that prints every event as a JSON line on standard output, and a summary as the last one."""

from __future__ import annotations

import json
import sys

from kafkad_etl.messages import Event, Rows, line_of
from kafkad_etl.reporting import Reporter, RunOutcome
from kctl.texts.output import drop


class JsonLines(Reporter):
    def show(self, event: Event) -> None:
        line = line_of(event).decode()
        if self.job:  # the job of an event is said only where there are several
            line = json.dumps({"job": self.job} | json.loads(line), ensure_ascii=False) + "\n"
        self._write(line)

    def rows(self, rows: Rows) -> None:
        """Handled like any other event."""

    def tick(self) -> None:
        """Does nothing."""

    def close(self, outcome: RunOutcome) -> None:
        if outcome == "not begun":
            return
        state = self.state
        windows = state.windows
        document = {
            **({"job": self.job} if self.job else {}),
            "type": "summary",
            "outcome": outcome,
            "seconds": round(self._clock() - state.began, 3),
            "rows_read": state.read,
            "rows_written": state.written,
            "bad": state.bad,
            "late": state.late,
            "duplicates": state.duplicates,
            "batches_not_told": state.untold,
            "rows_perhaps_written": sum(state.unsure.values()),
            "lost": sum(gap.records for gap in state.lost),
            "batches": state.batches,
            "batches_replayed": state.replayed,
            "files": state.files,
            "bytes_written": state.bytes_written,
            "lag": state.lag,
            "watermark": state.watermark or None,
            "open_windows": windows.groups if windows else state.open_groups,
            "offsets": {
                topic: {str(p): {"start": span.start, "end": span.done} for p, span in sorted(spans.items())}
                for topic, spans in sorted(state.spans.items())
            },
            "guarantee": self.guarantee or None,
            "log": self.log or None,
        }
        self._write(json.dumps(document, ensure_ascii=False) + "\n")

    def _write(self, line: str) -> None:
        """Lines that have no room end no run: they are dropped from then on."""
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
        except OSError as error:
            drop(sys.stdout)
            if not isinstance(error, BrokenPipeError):
                self.say(f"warning: no more events can be written to standard output: {error.strerror}")
