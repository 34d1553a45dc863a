"""`make demo`: it starts, enqueues jobs, serves its pages, and stops completely."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from tests.test_example_project import DATABASES, EXAMPLE, example_env
from tests.waiting import wait_until

pytestmark = pytest.mark.once

STARTED = "Jobs keep coming"


class DemoProcess:
    """demo.py, with its output in a file."""

    def __init__(self, env: dict[str, str], directory: Path, *flags: str) -> None:
        self.output = directory / "output"
        # Ctrl-C ignored, as for a command that a shell starts in the background.
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, str(EXAMPLE / "demo.py"), *flags],
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def read(self) -> str:
        return self.output.read_text()

    def find(self, pattern: str) -> str:
        """Wait until the pattern was printed; return its first group."""

        def search() -> re.Match[str] | None:
            printed = self.read()
            assert self.process.poll() is None, f"the demo has ended:\n{printed}"
            return re.search(pattern, printed)

        return wait_until(search)[1]

    def wait(self, seconds: float = 20) -> int:
        return self.process.wait(seconds)


@contextmanager
def demo(env: dict[str, str], directory: Path, *flags: str) -> Iterator[DemoProcess]:
    running = DemoProcess(env, directory, *flags)
    try:
        yield running
    except BaseException:
        print(f"--- what the demo printed\n{running.read()}")
        raise
    finally:
        # Its children end with it, whatever ends it.
        running.process.kill()
        running.process.wait()


@pytest.fixture
def port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(int(probe.getsockname()[1]), 65000)


@pytest.fixture
def browser() -> OpenerDirector:
    return build_opener(HTTPCookieProcessor(CookieJar()))


@pytest.fixture(params=DATABASES)
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    with example_env(request.param, tmp_path) as env:
        yield env


@pytest.fixture
def sqlite_env(tmp_path: Path) -> Iterator[dict[str, str]]:
    with example_env("sqlite", tmp_path) as env:
        yield env


def get(browser: OpenerDirector, address: str, **form: str) -> str:
    """Open an address; with a form, post it with the token of that page."""
    with browser.open(address, timeout=10) as answer:
        page: str = answer.read().decode()
    if not form:
        return page
    return post(browser, address, page, **form)


def post(browser: OpenerDirector, address: str, page: str, **form: str) -> str:
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    data = urlencode({"csrfmiddlewaretoken": token[1], **form}).encode()
    with browser.open(address, data, timeout=10) as answer:
        answered: str = answer.read().decode()
    return answered


def is_running(pid: int) -> bool:
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()
    # A process that has exited and was not waited for is listed as a zombie.
    return bool(state) and not state.startswith("Z")


@pytest.mark.slow
def test_demo_works_until_it_is_interrupted(
    env: dict[str, str], tmp_path: Path, port: int, browser: OpenerDirector
) -> None:
    with demo(env, tmp_path, "--port", str(port)) as running:
        site = running.find(r"Shop +(http://127\.0\.0\.1:\d+/)\n")
        password = running.find(r"user admin, password (\S+)\n")
        logs = Path(running.find(r"Logs +(\S+)\n"))
        worker = int(running.find(r"worker (\d+)\n"))

        page = get(browser, site)
        page = post(browser, f"{site}start/sign-up/", page)
        assert "shop.send_welcome was enqueued" in page
        wait_until(lambda: has_succeeded(get(browser, site)), pause=0.2)

        form = {"username": "admin", "password": password, "next": "/admin/"}
        assert "Log out" in get(browser, f"{site}admin/login/", **form)

        # At least two successes a second, and by then a job has died. Not the first
        # status line: a worker killed that early is not replaced.
        good = r"succeeded \d+ \(([2-9]|\d\d+)\.\d/s\) .* dead [1-9]"
        running.find(rf"succeeded .*\n(?:.*\n)*.*{good}")

        os.kill(worker, signal.SIGKILL)
        new_pid = running.find(r"The worker was killed by SIGKILL. .* pid (\d+)\.\n")
        assert int(new_pid) != worker
        log = "".join(path.read_text() for path in logs.iterdir())
        assert "job done" in log
        assert "database is locked" not in log

        children = find_children(running.process.pid)
        assert len(children) == 2
        started = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0
        assert time.monotonic() - started < 10
        assert not any(map(is_running, children))
        assert not logs.exists()
        assert "Traceback" not in running.read()


def has_succeeded(page: str) -> bool:
    own = page.partition("Your jobs")[2].partition("</ul>")[0]
    return "status succeeded" in own


def find_children(parent: int) -> list[int]:
    listed = subprocess.check_output(["ps", "-e", "-o", "pid=,ppid="], text=True)
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, ppid in pairs if int(ppid) == parent]


def try_to_get(browser: OpenerDirector, url: str) -> str:
    try:
        return get(browser, url)
    except OSError:
        return ""


def test_demo_takes_the_next_port_and_stops_by_itself(
    sqlite_env: dict[str, str], tmp_path: Path, browser: OpenerDirector
) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        flags = ("--port", str(taken), "--seconds", "8")
        with demo(sqlite_env, tmp_path, *flags) as running:
            site = running.find(r"Shop +(http://127\.0\.0\.1:\d+/)\n")
            assert int(site.rpartition(":")[2].strip("/")) > taken
            # Another process may have taken that port for a moment.
            assert "Corner shop" in wait_until(lambda: try_to_get(browser, site))
            assert running.wait() == 0
        assert re.search(r"Stopping after \d+ s\.", running.read())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_demo(
    number: signal.Signals, sqlite_env: dict[str, str], tmp_path: Path, port: int
) -> None:
    with demo(sqlite_env, tmp_path, "--port", str(port)) as running:
        running.find(f"({STARTED})")
        children = find_children(running.process.pid)
        running.process.send_signal(number)
        assert running.wait() == (-number if number == signal.SIGKILL else 0)
        wait_until(lambda: not any(map(is_running, children)))


def test_demo_says_in_one_line_that_no_port_is_free(
    sqlite_env: dict[str, str], tmp_path: Path
) -> None:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", 65535))
        busy.listen()
        with demo(sqlite_env, tmp_path, "--port", "65535") as running:
            assert running.wait() == 1
    [line] = running.read().splitlines()
    assert line.startswith("No port from 65535 to 65535 is free on 127.0.0.1.")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://nobody@127.0.0.1:1/shop", "The database 'shop' cannot be reached"),
        ("sqlite:////missing/db.sqlite3", "The database '/missing/db.sqlite3' cannot"),
        ("mysql://127.0.0.1/shop", "DATABASE_URL must begin with postgres:// or"),
    ],
)
def test_demo_says_in_one_line_that_there_is_no_database(
    url: str, expected: str, sqlite_env: dict[str, str], tmp_path: Path
) -> None:
    with demo(sqlite_env | {"DATABASE_URL": url}, tmp_path) as running:
        assert running.wait() == 1
    [line] = running.read().splitlines()
    assert line.startswith(expected)
