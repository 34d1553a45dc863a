"""Log records of a worker: logfmt or JSON, with the job's names on every one of them.

`runworker` calls configure(). Records written inside a handler, whoever writes them,
carry job id, job type, attempt and worker id; payloads are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO
from uuid import UUID

from ..lifecycle.claim import Claim
from ..signals import Event, format_field
from .attempt import current_claim


def configure(
    log_format: str,
    *,
    worker_id: UUID | None = None,
    on_broken: Callable[[], None] = lambda: None,
) -> None:
    """Name jobs on all records; add a handler where nobody has configured one.

    `on_broken` is called when nobody reads our handler's output any more.
    """
    _name_records(worker_id)
    package = logging.getLogger("django_jobqueue")
    if logging.getLogger().handlers or package.handlers:
        return
    handler = _Output(sys.stderr, on_broken=on_broken)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LogfmtFormatter())
    # On the root: what handlers log themselves shall be seen too.
    logging.getLogger().addHandler(handler)
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)


class _Output(logging.StreamHandler[TextIO]):
    """Writes until the other end of the pipe is closed, then asks for the end."""

    def __init__(self, stream: TextIO, *, on_broken: Callable[[], None]) -> None:
        super().__init__(stream)
        self._on_broken: Callable[[], None] | None = on_broken

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exception(), BrokenPipeError):
            super().handleError(record)
        elif self._on_broken is not None:
            # Once: what follows cannot be told to anybody.
            on_broken, self._on_broken = self._on_broken, None
            on_broken()


def _name_records(worker_id: UUID | None) -> None:
    """Give every record `jobqueue`, a dict: any handler and formatter may use it."""
    make_record = logging.getLogRecordFactory()
    if isinstance(make_record, _NamedRecords):
        # Of an earlier worker in this process.
        make_record = make_record.inner
    logging.setLogRecordFactory(_NamedRecords(make_record, worker_id))


@dataclass(frozen=True, slots=True)
class _NamedRecords:
    """Makes log records that name the job they were written in."""

    inner: Callable[..., logging.LogRecord]
    worker_id: UUID | None

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.inner(*args, **kwargs)
        record.jobqueue = _name_job(current_claim.get(), self.worker_id)
        return record


def _name_job(claim: Claim | None, worker_id: UUID | None) -> dict[str, Any]:
    if claim is None:
        return {} if worker_id is None else {"worker_id": str(worker_id)}
    return {
        "job_id": str(claim.id),
        "job_type": claim.job_type,
        "attempt": claim.attempt,
        "worker_id": str(worker_id),
    }


class LogfmtFormatter(logging.Formatter):
    """`2026-11-16T00:10:01.123Z INFO job done job_id=… attempt=1`."""

    def format(self, record: logging.LogRecord) -> str:
        text, fields = _read_record(record)
        moment = _format_time(record.created)
        line = " ".join([moment, record.levelname, text, *map(format_field, fields)])
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        text, fields = _read_record(record)
        line: dict[str, Any] = {
            "time": _format_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": text,
            **dict(fields),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _read_record(record: logging.LogRecord) -> tuple[str, list[tuple[str, Any]]]:
    names: dict[str, Any] = getattr(record, "jobqueue", {})
    if isinstance(record.msg, Event):
        # The event's own names first, in its order; it may be about another job.
        fields = record.msg.fields
        return record.msg.text, list((fields | names | fields).items())
    return record.getMessage(), list(names.items())


def _format_time(created: float) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{moment}.{int(created * 1000) % 1000:03d}Z"
