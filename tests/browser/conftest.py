"""A browser and a server for the tests marked `browser`; not in the default run.

Needs the Python package `playwright` (not its browser download) and Chromium of the
system, found as `chromium` or `google-chrome` on PATH or named by JOBQUEUE_CHROMIUM.
If one is missing the tests fail with a message; they are not skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[str]:
    """Serve the test project with a strict policy; return its address."""
    middleware = [*django_settings.MIDDLEWARE, "tests.browser.policy.add_policy"]
    with override_settings(MIDDLEWARE=middleware):
        live = LiveServer("localhost")
        yield live.url
        live.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start Chromium headless."""
    if find_spec("playwright") is None:
        pytest.fail("playwright is not installed: pip install playwright", False)
    from playwright.sync_api import sync_playwright

    # Playwright runs an event loop in this thread, so Django refuses sync queries.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the screenshots, which is kept after the run."""
    directory = tmp_path_factory.mktemp("screenshots")
    print(f"\nScreenshots: {directory}")
    return directory


def find_chromium() -> str:
    """Return the path of Chromium, or fail."""
    named = [os.environ.get("JOBQUEUE_CHROMIUM", ""), *NAMES]
    for name in filter(None, named):
        if path := shutil.which(name):
            return path
    pytest.fail(
        "Chromium was not found: install it (Debian: apt-get install chromium) or "
        "name it in JOBQUEUE_CHROMIUM.",
        False,
    )
