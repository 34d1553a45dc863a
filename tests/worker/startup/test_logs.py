"""Log records of a worker: logfmt and JSON, with the job's names on each of them."""

import io
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobqueue.job_log import LOUD_JOBS_PER_SECOND
from django_jobqueue.log_events import Event, format_field
from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.running.attempt import current_claim
from django_jobqueue.worker.startup import logs
from django_jobqueue.worker.startup.logs import (
    JsonFormatter,
    LogfmtFormatter,
    configure,
)
from tests.processes import ROOT

WORKER_ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
IN_JOB = {
    "job_id": "01890000-0000-7000-8000-000000000001",
    "job_type": "mail.send",
    "attempt": 2,
    "worker_id": str(WORKER_ID),
}


def make_claim() -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    names = {"job_type": "mail.send", "attempt": 2}
    return Claim(**values | names | {"id": uuid.UUID(str(IN_JOB["job_id"]))})


def make_record(message: Any, *args: Any, **values: Any) -> logging.LogRecord:
    record = logging.LogRecord(
        "tests.mail", logging.WARNING, "mail.py", 1, message, args, None
    )
    record.created = 1_800_000_000.5
    for name, value in values.items():
        setattr(record, name, value)
    return record


def make_failed_record() -> logging.LogRecord:
    try:
        raise ValueError("no such user")
    except ValueError:
        return make_record("it failed", exc_info=sys.exc_info())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("mail", "mail"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "no"', '"say \\"no\\""'),
        ("back\\slash", "back\\slash"),
        ("back\\slash and more", '"back\\\\slash and more"'),
        ("two\nlines", '"two\\nlines"'),
        ("two\r\nlines", '"two\\r\\nlines"'),
        ("Ünïcode", "Ünïcode"),
        (5, "5"),
        (0.123456, "0.123"),
        (True, "True"),
        (None, "None"),
        (WORKER_ID, str(WORKER_ID)),
    ],
)
def test_field_is_quoted_where_it_must_be(value: Any, text: str) -> None:
    assert format_field(("name", value)) == f"name={text}"


@settings(deadline=None)
@given(st.text())
def test_field_is_one_line_whatever_it_holds(value: str) -> None:
    line = format_field(("error", value))
    assert "\n" not in line
    assert "\r" not in line


@pytest.mark.parametrize("value", ["\x1b[2J", "a\x0bb", "a\x85b", "a\u2028b", "a\0b"])
def test_field_has_no_control_characters(value: str) -> None:
    assert format_field(("error", value)).isprintable()


@settings(deadline=None)
@given(st.text())
def test_quoted_field_can_be_read_back(value: str) -> None:
    text = format_field(("error", value)).removeprefix("error=")
    if text.startswith('"'):
        assert text.endswith('"')
        inner = text[1:-1].replace("\\\\", "\0\0").replace('\\"', "")
        assert '"' not in inner
    else:
        assert text == value


def test_event_is_a_text_and_its_fields_in_order() -> None:
    event = Event("job done", job_type="mail", duration=0.25, error="no way")
    assert str(event) == 'job done job_type=mail duration=0.250 error="no way"'
    assert str(Event("started")) == "started"


def test_logfmt_line_has_time_level_text_and_fields() -> None:
    record = make_record(Event("job done", attempt=1))
    assert LogfmtFormatter().format(record) == (
        "2027-01-15T08:00:00.500Z WARNING job done attempt=1"
    )


def test_logfmt_line_of_a_users_record_bears_the_jobs_names() -> None:
    record = make_record("sent to %s", "ann", jobqueue=IN_JOB)
    assert LogfmtFormatter().format(record) == (
        "2027-01-15T08:00:00.500Z WARNING sent to ann "
        "job_id=01890000-0000-7000-8000-000000000001 job_type=mail.send attempt=2 "
        f"worker_id={WORKER_ID}"
    )


def test_event_about_another_job_keeps_the_names_of_that_job() -> None:
    record = make_record(Event("job cancelled", job_id="other"), jobqueue=IN_JOB)
    line = LogfmtFormatter().format(record)
    assert line.count("job_id=") == 1
    assert "job_id=other" in line


def test_logfmt_traceback_follows_the_line() -> None:
    first, *rest = LogfmtFormatter().format(make_failed_record()).splitlines()
    assert first.endswith("WARNING it failed")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: no such user"


def test_json_line_is_one_object() -> None:
    record = make_record(
        Event("job dead", error="two\nlines", duration=0.25, id=WORKER_ID),
        jobqueue=IN_JOB,
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.500Z",
        "level": "WARNING",
        "logger": "tests.mail",
        "message": "job dead",
        **IN_JOB,
        "error": "two\nlines",
        "duration": 0.25,
        "id": str(WORKER_ID),
    }


def test_json_line_of_a_users_record_bears_the_jobs_names() -> None:
    line = JsonFormatter().format(make_record("sent to %s", "ann", jobqueue=IN_JOB))
    read = json.loads(line)
    assert read["message"] == "sent to ann"
    assert {name: read[name] for name in IN_JOB} == IN_JOB


def test_json_traceback_is_a_field() -> None:
    line = JsonFormatter().format(make_failed_record())
    assert "\n" not in line
    assert json.loads(line)["traceback"].endswith("ValueError: no such user")


@settings(deadline=None)
@given(st.text())
def test_json_line_holds_every_text(text: str) -> None:
    line = JsonFormatter().format(make_record(Event("job dead", error=text)))
    assert json.loads(line)["error"] == text
    line.encode()


@contextmanager
def bare_logging() -> Iterator[io.StringIO]:
    """Take all handlers off, and put everything back afterwards.

    No fixture: pytest gives the root logger handlers of its own for each phase.
    """
    root, package = logging.getLogger(), logging.getLogger("django_jobqueue")
    before = root.handlers, package.handlers, package.level, sys.stderr
    factory = logging.getLogRecordFactory()
    root.handlers, package.handlers, sys.stderr = [], [], io.StringIO()
    package.setLevel(logging.NOTSET)
    try:
        yield sys.stderr
    finally:
        root.handlers, package.handlers, level, sys.stderr = before
        package.setLevel(level)
        logging.setLogRecordFactory(factory)


def test_configure_adds_a_handler_if_there_is_none() -> None:
    with bare_logging() as stream:
        configure("text", worker_id=WORKER_ID)
        logging.getLogger("django_jobqueue.jobs").info(Event("job done", attempt=1))
        logging.getLogger("project.module").warning("hello")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(f"INFO job done attempt=1 worker_id={WORKER_ID}")
    assert second.endswith(f"WARNING hello worker_id={WORKER_ID}")


def test_configure_writes_json_if_asked() -> None:
    with bare_logging() as stream:
        configure("json", worker_id=WORKER_ID)
        logging.getLogger("django_jobqueue.jobs").info(Event("job done", attempt=1))
    read = json.loads(stream.getvalue())
    assert (read["message"], read["attempt"]) == ("job done", 1)
    assert read["worker_id"] == str(WORKER_ID)


@pytest.mark.parametrize("name", ["", "django_jobqueue"])
def test_configure_keeps_handlers_of_the_project(name: str) -> None:
    with bare_logging():
        mine = logging.NullHandler()
        logging.getLogger(name).handlers.append(mine)
        configure("text", worker_id=WORKER_ID)
        root, package = logging.getLogger(), logging.getLogger("django_jobqueue")
        assert [*root.handlers, *package.handlers] == [mine]
        assert package.level == logging.NOTSET


def test_configure_keeps_the_level_of_the_project() -> None:
    with bare_logging() as stream:
        logging.getLogger("django_jobqueue").setLevel(logging.ERROR)
        configure("text", worker_id=WORKER_ID)
        logging.getLogger("django_jobqueue.jobs").info("unheard")
    assert stream.getvalue() == ""


def test_every_record_inside_a_job_bears_its_names() -> None:
    with bare_logging() as stream:
        configure("json", worker_id=WORKER_ID)
        token = current_claim.set(make_claim())
        try:
            logging.getLogger("project.module").warning("inside")
        finally:
            current_claim.reset(token)
        logging.getLogger("project.module").warning("outside")
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert {name: inside[name] for name in IN_JOB} == IN_JOB
    assert outside["worker_id"] == str(WORKER_ID)
    assert "job_id" not in outside


def test_a_second_worker_in_one_process_names_records_in_place_of_the_first() -> None:
    with bare_logging() as stream:
        configure("text")
        configure("text", worker_id=WORKER_ID)
        logging.getLogger("project.module").warning("hello")
        inner = logging.getLogRecordFactory().inner
    assert stream.getvalue().endswith(f"WARNING hello worker_id={WORKER_ID}\n")
    assert inner is logging.LogRecord


def test_lines_of_tasks_are_limited_but_not_their_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs.time, "monotonic", lambda: 5.5)
    limit = logs.TaskLineLimit()
    done = logging.LogRecord("django.tasks", logging.INFO, "", 1, "done", (), None)
    failed = logging.LogRecord("django.tasks", logging.ERROR, "", 1, "no", (), None)
    assert [limit.filter(done) for _ in range(2 * LOUD_JOBS_PER_SECOND + 1)].count(
        True
    ) == 2 * LOUD_JOBS_PER_SECOND
    assert limit.filter(failed)
    monkeypatch.setattr(logs.time, "monotonic", lambda: 6.5)
    assert limit.filter(done)


@pytest.mark.parametrize("log_jobs", ["auto", "all"])
def test_limit_of_task_lines_is_installed_once(log_jobs: str) -> None:
    logger = logging.getLogger("django.tasks")
    before = list(logger.filters)
    factory = logging.getLogRecordFactory()
    try:
        for _ in range(2):
            configure("text", log_jobs=log_jobs)
        limits = [each for each in logger.filters if each not in before]
        assert len(limits) == int(log_jobs == "auto")
    finally:
        configure("text", log_jobs="all")
        logging.setLogRecordFactory(factory)


PROJECT = """
from django.conf import settings
settings.configure(
    DEBUG=True, USE_TZ=True, SECRET_KEY="x", MIDDLEWARE=[],
    INSTALLED_APPS=["django.contrib.contenttypes", "django_jobqueue", "dev"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db"}},
    TASKS={"default": {"BACKEND": "django_jobqueue.backend.JobBackend"}},
)
import logging
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from dev.jobs import fail, warn
fail.enqueue()
warn.enqueue()
call_command("runworker", burst=True, in_process=True)
"""
HANDLERS = """
import logging
from django_jobqueue import job

@job(max_attempts=1)
def fail():
    raise ValueError("on purpose")

@job
def warn():
    logging.getLogger("django.dev").warning("as Django warns")
    logging.getLogger("dev").warning("as the project warns")
"""


@pytest.mark.once
def test_debug_log_shows_tracebacks_and_no_line_twice(tmp_path: Path) -> None:
    """With Django's default LOGGING."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "__init__.py").touch()
    (tmp_path / "dev" / "jobs.py").write_text(HANDLERS)
    (tmp_path / "run.py").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("as Django warns", "as the project warns", "job dead"):
        assert done.stderr.count(text) == 1, done.stderr
    assert 'raise ValueError("on purpose")\nValueError: on purpose\n' in done.stderr
