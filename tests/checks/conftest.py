"""Each test of the checks starts with the handlers of testapp only."""

import pytest


@pytest.fixture(autouse=True)
def testapp_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the registry for one test."""
    from django_jobqueue import registry

    known = {
        name: made
        for name, made in registry._registry.items()
        if made.target.__module__.startswith("tests.testapp.")
    }
    monkeypatch.setattr(registry, "_registry", known)
    monkeypatch.setattr(registry, "_announced", {})
    monkeypatch.setattr(registry, "duplicates", [])
