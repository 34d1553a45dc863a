"""Interrupts are raised where no lock is held, and every attempt ends once."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

INTERRUPTS = "django_jobqueue/worker/running/interrupts.py"
COROUTINES = "django_jobqueue/worker/running/event_loop.py"
SLOTS = "django_jobqueue/worker/running/thread_pool.py"
TESTS = "tests/worker/running/test_interrupts.py"

INTERRUPTIONS = [
    Mutant(
        "interrupt-inside-an-import",
        "A handler is not interrupted while it holds a lock that others need.",
        [Edit(INTERRUPTS, "if kind is Kind.SEALED or (", "if (")],
        tests=[f"{TESTS}::test_an_import_is_not_interrupted"],
        database="sqlite",
    ),
    Mutant(
        "interrupt-before-the-handler",
        "A handler is interrupted between its entry and its return only.",
        [
            Edit(
                INTERRUPTS,
                "return frames if has_owner and frame is entry else None",
                "return frames",
            ),
            Edit(
                INTERRUPTS, "while frame is not None and frame is not entry:", "if 0:"
            ),
        ],
        tests=[
            f"{TESTS}::test_an_interruption_before_the_handler_is_called_is_deferred"
        ],
        database="sqlite",
    ),
    Mutant(
        "bad-backoff-stops-the-deadline-thread",
        "No single job stops the thread that checks the deadlines.",
        [
            Edit(
                "django_jobqueue/worker/running/deadlines.py",
                "            delay = self._find_delay(job)\n"
                "        except BaseException as error:\n",
                "            delay = self._find_delay(job)\n"
                "        except KeyError as error:\n",
            )
        ],
        tests=[
            f"{TESTS}::test_a_job_whose_retry_delay_fails_does_not_stop_the_deadlines"
        ],
        database="sqlite",
    ),
    Mutant(
        "cancelled-task-has-no-end",
        "A task that is cancelled before its first step ends and frees its slot.",
        [
            Edit(
                COROUTINES,
                "            ending = end_unstarted(job)\n",
                "            return\n",
            )
        ],
        tests=[
            "tests/worker/running/test_event_loop.py"
            "::test_job_cancelled_before_its_first_step_ends_and_frees_its_slot"
        ],
        database="sqlite",
    ),
    Mutant(
        "context-of-the-previous-job",
        "Each attempt runs in a new context.",
        [Edit(SLOTS, "context = clean.copy()", "context = clean")],
        tests=[
            "tests/worker/running/test_thread_pool.py"
            "::test_context_of_an_attempt_is_not_seen_by_the_next"
        ],
        database="sqlite",
    ),
]
