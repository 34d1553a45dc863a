"""Parts of SQL statements that several modules share, each stated once.

Joined into the statements at import. tests/lifecycle/test_statements.py prints every
final statement in a form that psql accepts.
"""

from __future__ import annotations

# The fence: the claim `given` still owns `job`. Every write of an attempt has it.
IS_OWNED = """
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
""".strip()

# The database's clock, read once for each statement; tests pass `now`.
CLOCK = """
    clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    )
""".strip()

# The row of one attempt; the id of its job comes first.
ATTEMPT_COLUMNS = """
            job_id,
            lease_token,
            number,
            worker_id,
            started_at,
            finished_at,
            outcome,
            exception_class,
            message,
            traceback
""".strip()
ATTEMPT_VALUES = """
            ended.token,
            ended.number,
            %(worker_id)s::uuid,
            clock.now - ended.age * interval '1 second',
            clock.now,
            ended.label,
            ended.exception_class,
            ended.message,
            ended.traceback
""".strip()

# For statements that must not wait long for a row that another session holds.
LIMIT_LOCK_WAIT = """
    SELECT set_config('lock_timeout', '50ms', true)
"""
