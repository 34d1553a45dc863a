"""The deployment files of the example: what can be checked without Docker.

Every command and flag in them exists, every environment variable is an option, images
do not run as root, and systemd, if installed, accepts the units.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from django_jobqueue.options import KEYS, Options

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "example_project"
DOCKERFILE = EXAMPLE / "Dockerfile"
COMPOSE = EXAMPLE / "compose.yaml"
UNITS = sorted((EXAMPLE / "systemd").glob("*.service"))
GUIDE = ROOT / "docs" / "guides" / "deployment.md"
FILES = [DOCKERFILE, COMPOSE, EXAMPLE / "Procfile", *UNITS, GUIDE]
COMMAND = re.compile(r"manage\.py[\"',]*\s+([^&|\n`\]#]+)")
SHUTDOWN_SECONDS = Options().shutdown_timeout.total_seconds()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of each Dockerfile line, continuations joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]  # type: ignore[misc]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage, preceded by those of its base stages."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for instruction, rest in instructions():
        if instruction == "FROM":
            base, _, name = rest.split()
            current = found[name] = list(found.get(base, []))
        else:
            current.append((instruction, rest))
    return found


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each `manage.py` in a file."""
    for found in COMMAND.findall(path.read_text()):
        words = shlex.split(re.sub(r"[\",]", " ", found.replace("%i", "mail")))
        yield [word.strip("'") for word in words]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_commands_and_flags_exist(path: Path) -> None:
    found = list(commands(path))
    assert found
    known = get_commands()
    for name, *arguments in found:
        assert name in known, name
        command: Any = load_command_class(str(known[name]), name)
        # The parser exits on an unknown flag, which fails the test.
        command.create_parser("manage.py", name).parse_args(arguments)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_environment_variables_are_options(path: Path) -> None:
    for key in re.findall(r"\bJOBQUEUE_([A-Z_]+)", path.read_text()):
        assert key in KEYS


def test_image_is_built_in_stages_and_does_not_run_as_root() -> None:
    assert list(stages()) == ["build", "project", "web", "worker"]
    for name in ("web", "worker"):
        users = [rest for instruction, rest in stages()[name] if instruction == "USER"]
        assert users
        assert users[-1] not in {"root", "0"}
        assert ("COPY", "--from=build /venv /venv") in stages()[name]


def test_image_copies_only_what_exists_and_is_not_ignored() -> None:
    ignored = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    for instruction, rest in instructions():
        if instruction == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source


def test_worker_image_uses_the_health_check_of_the_worker() -> None:
    worker = dict(stages()["worker"])
    assert json.loads(worker["CMD"]) == ["python", "manage.py", "runworker"]
    [check] = re.findall(r"CMD (\[.*\])", worker["HEALTHCHECK"])
    python, flag, code = json.loads(check)
    assert (python, flag) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    [port] = re.findall(r"JOBQUEUE_HEALTH_PORT=(\d+)", DOCKERFILE.read_text())
    assert f"http://127.0.0.1:{port}/live" in code


def test_compose_file_uses_stages_that_exist() -> None:
    text = COMPOSE.read_text()
    assert set(re.findall(r"target: (\w+)$", text, re.MULTILINE)) <= set(stages())
    assert "\t" not in text
    [seconds] = re.findall(r"stop_grace_period: (\d+)s", text)
    assert int(seconds) > SHUTDOWN_SECONDS


def test_compose_file_waits_for_the_database_and_the_migrations() -> None:
    import yaml

    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert services["migrate"]["depends_on"] == {
        "database": {"condition": "service_healthy"}
    }
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"}
        }


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_unit_leaves_the_worker_time_to_stop(unit: Path) -> None:
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(seconds) > SHUTDOWN_SECONDS


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text().replace("/srv/shop/venv/bin/python", sys.executable)
    text = text.replace("/srv/shop", str(tmp_path))
    # A template is checked under the name of one of its units.
    copy = tmp_path / unit.name.replace("@.", "@mail.")
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
