"""The script that follows the README: it reads the steps and reports failures.

Following the pages takes minutes and a package index: `make test-quickstart`.
"""

from pathlib import Path

import pytest

from tests.quickstart import follow_readme
from tests.quickstart.follow_readme import Step, StepFailed, follow, read_steps

WHEEL = Path("/wheels/django_jobqueue-1.0-py3-none-any.whl")
PAGE = """\
# Title

```shell
echo before
```

## Quickstart

```python
# shop/jobs.py
print(1)
```

```python
print("no file is named, so this is only to be read")
```

```shell
echo one
echo two
```

```text
what it prints
```

## Later

```shell
echo after
```
"""


def test_steps_are_the_blocks_of_the_section_in_their_order() -> None:
    assert read_steps(PAGE, section="Quickstart") == [
        Step("print(1)\n", "shop/jobs.py"),
        Step("echo one\necho two\n"),
    ]


def test_without_a_section_the_whole_page_is_followed() -> None:
    assert [step.path for step in read_steps(PAGE)] == ["", "shop/jobs.py", "", ""]


def test_page_without_the_section_or_without_steps_is_an_error() -> None:
    with pytest.raises(StepFailed, match="no section 'Start'"):
        read_steps(PAGE, section="Start")
    with pytest.raises(StepFailed, match="nothing to follow"):
        read_steps("# Title\n")


def test_text_is_added_to_the_end_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("A = 1\n")
    step = Step("A += 1\n", "settings.py")
    follow(step, folder=tmp_path, env={}, wheel=WHEEL)
    assert (tmp_path / "settings.py").read_text() == "A = 1\n\nA += 1\n"


def test_file_of_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="there is no folder shop"):
        follow(Step("", "shop/jobs.py"), folder=tmp_path, env={}, wheel=WHEEL)


def test_command_that_fails_ends_the_step_and_is_named(tmp_path: Path) -> None:
    step = Step("false\ntouch never\n")
    with pytest.raises(StepFailed, match="exit code 1 of: false"):
        follow(step, folder=tmp_path, env={"PATH": "/usr/bin:/bin"}, wheel=WHEEL)
    assert not (tmp_path / "never").exists()


def test_only_the_requirement_of_pip_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []
    monkeypatch.setattr(
        follow_readme, "run", lambda command, **kwargs: run.append(command[-1])
    )
    text = 'pip install "../django-jobqueue[binary]"\necho django-jobqueue\n'
    follow(Step(text), folder=tmp_path, env={}, wheel=WHEEL)
    follow(Step(text), folder=tmp_path, env={}, wheel=None)
    assert run == [
        f'pip install "{WHEEL}[binary]"\necho django-jobqueue',
        text.rstrip("\n"),
    ]


@pytest.mark.parametrize(
    ("page", "section"), [("README.md", "Quickstart"), ("docs/quickstart.md", "")]
)
def test_pages_install_enqueue_and_run(page: str, section: str) -> None:
    steps = read_steps((follow_readme.ROOT / page).read_text(), section=section)
    commands = "".join(step.text for step in steps if not step.path)
    for part in ("pip install", "migrate", ".enqueue(", "runworker --burst"):
        assert part in commands
    assert {"mysite/settings.py", "shop/jobs.py"} <= {step.path for step in steps}
