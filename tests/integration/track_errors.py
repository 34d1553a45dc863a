"""Follow docs/guides/error-tracking.md with a transport that keeps the events.

    python -m tests.integration.track_errors [--only-dead]

Run by test_error_tracking.py in a separate process, because sentry-sdk patches logging
and Django and cannot be removed again. Prints the events as JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import sentry_sdk
from sentry_sdk.transport import Transport

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "error-tracking.md"
BLOCK = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = "mysite.error_tracking"

events: list[dict[str, Any]] = []


class KeepingTransport(Transport):
    def capture_envelope(self, envelope: Any) -> None:
        event = envelope.get_event()
        if event is not None:
            events.append(event)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "JOBQUEUE_TEST_DATABASE": "sqlite",
            "JOBQUEUE_TEST_NAME_default": f"{folder}/db.sqlite3",
        }
        follow_guide()
        run_failing_jobs()
    sentry_sdk.flush()
    json.dump(events, sys.stdout, default=str)


def follow_guide() -> None:
    import django
    from django.conf import settings

    blocks = BLOCK.findall(GUIDE.read_text())
    code = dict.fromkeys(
        ("mysite/settings.py", "mysite/error_tracking.py", "mysite/dead_jobs.py"), ""
    )
    for path, text in blocks:
        code[path] += text
    namespace: dict[str, Any] = {}
    exec(code["mysite/settings.py"], namespace)
    client = sentry_sdk.get_client()
    client.transport = KeepingTransport(client.options)
    settings.JOBQUEUE = namespace["JOBQUEUE"]
    django.setup()
    module = ModuleType(MODULE)
    sys.modules |= {"mysite": ModuleType("mysite"), MODULE: module}
    if "--only-dead" in sys.argv:
        settings.JOBQUEUE = {}
        exec(code["mysite/dead_jobs.py"], vars(module))
    else:
        exec(code["mysite/error_tracking.py"], vars(module))


def run_failing_jobs() -> None:
    from django.core.management import call_command

    from django_jobqueue.signals import job_died
    from tests.testapp import conformance_tasks, jobs

    call_command("migrate", verbosity=0)
    jobs.fail.using(max_attempts=1).enqueue(message="first")
    jobs.fail.using(max_attempts=1).enqueue(message="second")
    jobs.cancel_itself.enqueue()
    jobs.add.enqueue(x=1)
    conformance_tasks.fail_async.using(max_attempts=1).enqueue("async")
    call_command("runworker", burst=True, concurrency=1, verbosity=0)
    job_died.send(
        None,
        job_id=uuid4(),
        job_type="shop.pay",
        reason="crashed",
        error="killed",
        exception=None,
    )


if __name__ == "__main__":
    main()
