"""The connections of job threads, as others see them."""

from __future__ import annotations

import pytest
from django.db import connections

from django_jobqueue.worker.running.query_cancel import find_backends

pytestmark = pytest.mark.postgresql


@pytest.mark.django_db(databases=["default", "business"])
def test_backends_of_another_database_are_not_ours_to_end() -> None:
    """On another server its number may be that of anybody's session."""
    wrappers = [connections[alias] for alias in ("business", "default")]
    for wrapper in wrappers:
        wrapper.ensure_connection()
    raw = connections["default"].connection
    assert find_backends(wrappers) == (raw.info.backend_pid,)


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["HOST", "PORT", "USER", "NAME"])
def test_an_alias_is_the_same_database_if_all_of_its_address_is(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    wrapper = connections["default"].copy()
    wrapper.ensure_connection()
    try:
        assert len(find_backends([wrapper])) == 1
        monkeypatch.setitem(wrapper.settings_dict, key, "elsewhere")
        assert find_backends([wrapper]) == ()
    finally:
        wrapper.close()
