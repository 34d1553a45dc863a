"""Log records of a worker: logfmt or JSON, each with the job that wrote it.

`runworker` calls configure(). Every record written inside a handler carries job id, job
type, attempt and worker id, whichever logger wrote it. Payloads are never logged.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, TextIO
from uuid import UUID

from ...job_log import LOUD_JOBS_PER_SECOND
from ...log_events import Event, format_field
from ...storage.claims import Claim
from ..running.attempt import current_claim
from ..running.interrupts import raise_wanted_by_log_call, wanted


def configure(
    log_format: str,
    *,
    worker_id: UUID | None = None,
    log_jobs: str = "all",
    on_broken: Callable[[], None] = lambda: None,
    broken: Set[int] = frozenset({errno.EPIPE}),
) -> None:
    """Name jobs on all records; add a handler if the project has configured none.

    With `log_jobs` "auto" the lines of django.tasks are limited like those of jobs.
    `on_broken` is called when our handler's output fails with an errno in `broken`:
    its reader is gone.
    """
    _name_records(worker_id)
    _limit_task_lines(is_limited=log_jobs == "auto")
    package = logging.getLogger("django_jobqueue")
    if logging.getLogger().handlers or package.handlers:
        return
    handler = _Output(_copy_stderr(), on_broken=on_broken, broken=broken)
    handler.setFormatter(JsonFormatter() if log_format == "json" else LogfmtFormatter())
    # Django's default configuration has a handler for the terminal with DEBUG.
    handler.addFilter(_is_not_shown)
    # On the root logger: records of the project's own loggers must be seen, too.
    logging.getLogger().addHandler(handler)
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)


def _is_not_shown(record: logging.LogRecord) -> bool:
    """Return whether no handler below the root writes this record to the terminal."""
    # getLogger() would take logging's lock.
    logger: Any = logging.Logger.manager.loggerDict.get(record.name)
    while isinstance(logger, logging.Logger) and logger.parent is not None:
        if any(_writes_to_terminal(handler, record) for handler in logger.handlers):
            return False
        logger = logger.parent
    return True


def _writes_to_terminal(handler: logging.Handler, record: logging.LogRecord) -> bool:
    stream = getattr(handler, "stream", None)
    is_terminal = stream is not None and stream in (sys.stderr, sys.stdout)
    is_wanted = is_terminal and record.levelno >= handler.level
    return is_wanted and bool(handler.filter(record))


def _limit_task_lines(*, is_limited: bool) -> None:
    """Install the limit once on the loggers of Django and of its backport."""
    for name in ("django.tasks", "django_tasks"):
        logger = logging.getLogger(name)
        for old in list(logger.filters):
            if isinstance(old, TaskLineLimit):
                logger.removeFilter(old)
        if is_limited:
            logger.addFilter(TaskLineLimit())


class TaskLineLimit(logging.Filter):
    """Limits the lines of successful tasks per second, as LOG_JOBS "auto" does for
    jobs. A task has two lines, for its start and its end. Failures always pass."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            return True
        # Two threads may count at once: the limit is not exact.
        if (second := int(time.monotonic())) != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= 2 * LOUD_JOBS_PER_SECOND


def _copy_stderr() -> TextIO:
    """Return a stream on a copy of the descriptor of stderr.

    A job may close descriptor 2. The next socket gets that number, and log lines would
    go to the database server.
    """
    try:
        descriptor = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return sys.stderr
    encoding, errors = sys.stderr.encoding, sys.stderr.errors
    return os.fdopen(descriptor, "w", buffering=1, encoding=encoding, errors=errors)


class _Output(logging.StreamHandler[TextIO]):
    """Writes to stderr until its reader is gone, then calls `on_broken`."""

    def __init__(
        self, stream: TextIO, *, on_broken: Callable[[], None], broken: Set[int]
    ) -> None:
        super().__init__(stream)
        self._broken = broken
        self._on_broken: Callable[[], None] | None = on_broken

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exception()
        if not (isinstance(error, OSError) and error.errno in self._broken):
            super().handleError(record)
        elif self._on_broken is not None:
            # Only once: later lines cannot be written either.
            on_broken, self._on_broken = self._on_broken, None
            on_broken()


def _name_records(worker_id: UUID | None) -> None:
    """Give every record a dict `jobqueue`, for any handler and formatter."""
    make_record = logging.getLogRecordFactory()
    if isinstance(make_record, _NamedRecords):
        # Set by an earlier worker in this process.
        make_record = make_record.inner
    logging.setLogRecordFactory(_NamedRecords(make_record, worker_id))


@dataclass(frozen=True, slots=True)
class _NamedRecords:
    """Makes log records that name the job in which they were written."""

    inner: Callable[..., logging.LogRecord]
    worker_id: UUID | None

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        if wanted:
            raise_wanted_by_log_call()
        record = self.inner(*args, **kwargs)
        record.jobqueue = _name_job(current_claim.get(), self.worker_id)
        if isinstance(record.msg, Event) and record.msg.traceback:
            # What a formatter makes of `exc_info`: the exception itself is gone.
            record.exc_text = record.msg.traceback
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
        elif record.exc_text:
            line = f"{line}\n{record.exc_text}"
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
        elif record.exc_text:
            line["traceback"] = record.exc_text
        return json.dumps(line, default=str)


def _read_record(record: logging.LogRecord) -> tuple[str, list[tuple[str, Any]]]:
    names: dict[str, Any] = getattr(record, "jobqueue", {})
    if isinstance(record.msg, Event):
        # The event's own fields first, in their order; it may be about another job.
        fields = record.msg.fields
        return record.msg.text, list((fields | names | fields).items())
    return record.getMessage(), list(names.items())


def _format_time(created: float) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{moment}.{int(created * 1000) % 1000:03d}Z"
