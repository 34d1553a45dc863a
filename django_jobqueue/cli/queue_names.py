"""Queue names given to a worker: find those that nothing uses, most likely mistyped.

Called by `runworker` once the database is there. A queue exists by being used, so an
unknown name is a warning and not an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from django.db import connections

from ..models import Queue
from ..options import Options
from ..registry import all_handlers
from ..storage.database import Database
from ..storage.queue_counts import count_by_queue
from ..suggestions import suggest

# The check is a courtesy: a slow database must not delay the worker for longer.
MAX_WAIT_SECONDS = 5.0
# Rows of each status that are read for the queues of jobs.
MAX_ROWS_READ = 1_000

logger = logging.getLogger("django_jobqueue.worker")


def warn_about_unknown_queues(options: Options) -> None:
    """Log a warning for each name in QUEUES and EXCLUDE_QUEUES that nothing uses."""
    if not _list_undeclared(options):
        return
    # A separate thread: no connection stays open in the main thread of a supervisor.
    thread = threading.Thread(target=_warn, args=[options], daemon=True)
    thread.start()
    thread.join(MAX_WAIT_SECONDS)


def describe_unknown_queues(options: Options) -> Iterator[str]:
    """Yield a line for each name that no handler, job or Queue row has."""
    names = _list_undeclared(options)
    if not names:
        return
    declared = {handler.queue for handler in all_handlers().values()}
    known = declared | _read_queues(Database(alias=options.database))
    for name in names:
        if name not in known:
            hint = suggest(name, sorted(known))
            yield f"No handler and no job uses the queue {name!r}. {hint}".rstrip()


def _list_undeclared(options: Options) -> list[str]:
    """Return the given names that no handler declares: most workers have none."""
    given = [*(name for name, _ in options.queues or ()), *options.exclude_queues]
    if not given:
        return []
    declared = {handler.queue for handler in all_handlers().values()}
    return [name for name in given if name not in declared]


def _read_queues(db: Database) -> set[str]:
    remembered = Queue.objects.using(db.alias).values_list("name", flat=True)
    counts = count_by_queue(db, limit=1, total_limit=MAX_ROWS_READ)
    return {*remembered, *(count.queue for count in counts)}


def _warn(options: Options) -> None:
    try:
        for line in describe_unknown_queues(options):
            logger.warning("%s", line)
    except Exception:
        # The worker retries whatever is wrong with the database.
        logger.debug("Could not check the names of queues.", exc_info=True)
    finally:
        for connection in connections.all(initialized_only=True):
            connection.close()
            if connection.settings_dict["OPTIONS"].get("pool"):
                connection.close_pool()  # type: ignore[attr-defined]
