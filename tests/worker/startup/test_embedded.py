"""Which processes are web processes, and the environment of their workers."""

from __future__ import annotations

import os
import sys

import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from django_jobqueue.options import Options
from django_jobqueue.worker.startup import embedded
from django_jobqueue.worker.startup.embedded import (
    WEB_PROCESS_VARIABLE,
    find_web_process,
    fit_to_web_process,
    forget_web_process,
    is_web_process,
)


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        (["manage.py", "runserver"], {}, False),
        (["manage.py", "runserver", "8000"], {"RUN_MAIN": "true"}, True),
        (["manage.py", "runserver", "--noreload"], {}, True),
        (["manage.py", "migrate"], {}, False),
        (["manage.py", "test"], {"RUN_MAIN": "true"}, False),
        (["manage.py", "runworker"], {}, False),
        (["pytest"], {}, False),
        (["script.py"], {}, False),
    ],
)
def test_runserver_is_a_web_process_but_once(
    argv: list[str], environ: dict[str, str], expected: bool
) -> None:
    assert is_web_process(argv, environ) is expected


@pytest.mark.parametrize("make", [get_wsgi_application, get_asgi_application])
def test_a_server_that_loads_the_application_is_a_web_process(
    monkeypatch: pytest.MonkeyPatch, make: object
) -> None:
    seen: list[bool] = []

    def setup(set_prefix: bool = True) -> None:
        seen.append(is_web_process(["gunicorn"], {}))

    monkeypatch.setattr("django.setup", setup)
    assert callable(make)
    make()
    assert seen == [True]


def test_a_worker_knows_its_web_process_until_it_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_web_process() is None
    monkeypatch.setenv(WEB_PROCESS_VARIABLE, "12")
    assert find_web_process() == 12
    forget_web_process()
    assert find_web_process() is None


def test_an_embedded_worker_does_not_end_by_itself_nor_take_a_port() -> None:
    options = Options(burst=True, reload=True, health_port=80, concurrency=3)
    assert fit_to_web_process(options) == Options(concurrency=3)


def test_environment_of_the_worker_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_MAIN", "true")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/web")
    environment = embedded._make_environment()
    assert environment[WEB_PROCESS_VARIABLE] == str(os.getpid())
    assert not {"RUN_MAIN", "NOTIFY_SOCKET"} & set(environment)
    assert set(filter(None, sys.path)) == set(environment["PYTHONPATH"].split(":"))


@pytest.mark.parametrize("executable", ["/usr/sbin/uwsgi", "", None])
def test_a_server_that_embeds_python_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "prefix", "/srv/venv")
    assert embedded._find_python() == "/srv/venv/bin/python3"


def test_without_settings_to_name_no_worker_is_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    monkeypatch.setattr(embedded, "_start_worker", pytest.fail)
    embedded.start_embedded_worker()
    assert "EMBED_WORKER needs" in caplog.text


class FakeWorker:
    def __init__(self, code: int) -> None:
        self._code = code

    def wait(self) -> int:
        return self._code


def test_a_worker_that_fails_is_started_again_after_a_growing_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    later = [FakeWorker(1)] * 7 + [FakeWorker(0)]
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr(embedded, "_start_worker", lambda: later.pop(0))
    embedded._keep_running(FakeWorker(1))  # type: ignore[arg-type]
    assert later == []
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
