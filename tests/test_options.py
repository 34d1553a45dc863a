"""Options: what settings, environment and flags say, who wins, and what is refused."""

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_jobqueue.exceptions import ConfigurationError, InvalidQueueName
from django_jobqueue.options import (
    KEYS,
    Options,
    Retention,
    check_queue_name,
    get_options,
    make_options,
    parse_queues,
    read_options,
)

ALIASES = {
    "POLL_INTERVAL": "JOB_POLL_INTERVAL",
    "BATCH_SIZE": "JOB_BATCH_SIZE",
    "MAX_ATTEMPTS": "JOB_MAX_RETRIES",
    "CONCURRENCY": "WORKER_CONCURRENCY",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*ALIASES.values(), *(f"JOBQUEUE_{key}" for key in KEYS)]:
        monkeypatch.delenv(name, raising=False)
    with override_settings(JOBQUEUE={}):
        yield


def only_problem(configured: Any) -> tuple[str, str]:
    """Return message and hint of the one thing wrong with a JOBQUEUE setting."""
    with override_settings(JOBQUEUE=configured):
        _, [problem] = read_options({})
    return problem.message, problem.hint


def test_defaults_are_the_documented_ones() -> None:
    options = make_options({})
    assert options.database == "default"
    assert options.concurrency == 10
    assert options.processes == 1
    assert options.queues is None
    assert options.exclude_queues == ()
    assert options.poll_interval == timedelta(seconds=1)
    assert options.max_attempts == 3
    assert options.timeout == timedelta(minutes=15)
    assert options.grace == timedelta(seconds=5)
    assert options.backoff_base == timedelta(seconds=1)
    assert options.backoff_cap == timedelta(seconds=300)
    assert options.heartbeat_interval == timedelta(seconds=5)
    assert options.heartbeat_ttl == timedelta(seconds=30)
    assert options.shutdown_timeout == timedelta(seconds=25)
    assert options.max_crashes == 3
    assert options.max_lost == 10
    assert options.unknown_handler_grace == timedelta(hours=1)
    assert options.max_payload_bytes == 1024 * 1024
    assert options.aging == timedelta(hours=1)
    assert options.retention == {
        "succeeded": Retention(age=timedelta(days=1)),
        "cancelled": Retention(age=timedelta(days=7)),
    }


def test_every_settled_key_exists() -> None:
    settled = """
        DATABASE CONCURRENCY PROCESSES QUEUES EXCLUDE_QUEUES POLL_INTERVAL BATCH_SIZE
        SHUTDOWN_TIMEOUT TIMEOUT GRACE MAX_ATTEMPTS BACKOFF_BASE BACKOFF_CAP
        HEARTBEAT_INTERVAL HEARTBEAT_TTL MAX_CRASHES MAX_LOST UNKNOWN_HANDLER_GRACE
        MAX_PAYLOAD_BYTES MAX_RESULT_BYTES RETENTION AGING
    """
    assert set(settled.split()) <= set(KEYS)


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make_options({}).concurrency = 5  # type: ignore[misc]


def test_setting_wins_over_default() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 4}):
        assert make_options({}).concurrency == 4


def test_environment_wins_over_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_CONCURRENCY", "5")
    with override_settings(JOBQUEUE={"CONCURRENCY": 4}):
        assert make_options({}).concurrency == 5


def test_flag_wins_over_environment_and_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBQUEUE_CONCURRENCY", "5")
    with override_settings(JOBQUEUE={"CONCURRENCY": 4}):
        assert make_options({"concurrency": 6}).concurrency == 6


def test_flag_of_none_is_one_that_was_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBQUEUE_BURST", "yes")
    assert make_options({"burst": None}).burst is True


def test_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBQUEUE_CONCURRENCY", "")
    with override_settings(JOBQUEUE={"CONCURRENCY": 4}):
        assert make_options({}).concurrency == 4


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("JOB_POLL_INTERVAL", "250", "poll_interval", timedelta(milliseconds=250)),
        ("JOB_BATCH_SIZE", "50", "batch_size", 50),
        ("JOB_MAX_RETRIES", "7", "max_attempts", 7),
        ("WORKER_CONCURRENCY", "3", "concurrency", 3),
    ],
)
def test_names_that_other_tools_use_are_understood(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, field: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    with override_settings(JOBQUEUE={field.upper(): 1}):
        assert getattr(make_options({}), field) == value


@pytest.mark.parametrize("key", ALIASES)
def test_own_variable_wins_over_its_alias(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(ALIASES[key], "20")
    monkeypatch.setenv(f"JOBQUEUE_{key}", "30")
    value = getattr(make_options({}), key.lower())
    assert value == (timedelta(seconds=30) if key == "POLL_INTERVAL" else 30)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("JOBQUEUE_POLL_INTERVAL", "0.5", timedelta(milliseconds=500)),
        ("JOBQUEUE_TIMEOUT", "60", timedelta(minutes=1)),
        ("JOBQUEUE_QUEUES", "high:4, low", (("high", 4), ("low", 1))),
        ("JOBQUEUE_EXCLUDE_QUEUES", "slow,huge", ("slow", "huge")),
        ("JOBQUEUE_MAX_JOBS", "5", 5),
        ("JOBQUEUE_BURST", "true", True),
        ("JOBQUEUE_LOG_FORMAT", "json", "json"),
        (
            "JOBQUEUE_RETENTION",
            '{"succeeded": 60, "cancelled": {"keep": 10}}',
            {
                "succeeded": Retention(age=timedelta(minutes=1)),
                "cancelled": Retention(keep=10),
            },
        ),
    ],
)
def test_variable_is_read_by_the_type_of_its_option(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    field = variable.removeprefix("JOBQUEUE_").lower()
    assert getattr(make_options({}), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "JOBQUEUE_CONCURRENCY",
            "many",
            "The environment variable JOBQUEUE_CONCURRENCY must be a whole number "
            "from 1 to 10000; it is 'many'.",
        ),
        (
            "JOBQUEUE_MAX_ATTEMPTS",
            "1.5",
            "The environment variable JOBQUEUE_MAX_ATTEMPTS must be a whole number "
            "from 1 to 32000; it is '1.5'.",
        ),
        (
            "JOB_POLL_INTERVAL",
            "soon",
            "The environment variable JOB_POLL_INTERVAL must be a number of seconds "
            "from 0.01 to 3600; it is 'soon'.",
        ),
        (
            "JOBQUEUE_RETENTION",
            "{a week",
            "The environment variable JOBQUEUE_RETENTION must be "
            '{"succeeded": seconds or {"keep": count} or None, "cancelled": …}; '
            "it is '{a week'.",
        ),
    ],
)
def test_variable_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    options, [problem] = read_options({})
    assert problem.message == message
    assert options == Options()


@pytest.mark.parametrize("text", ["5 min", "2s", "1,5", "five5"])
def test_variable_of_seconds_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("JOBQUEUE_POLL_INTERVAL", text)
    _, [problem] = read_options({})
    assert problem.message.endswith(f"; it is {text!r}.")


def test_variable_of_seconds_may_have_an_exponent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBQUEUE_POLL_INTERVAL", "1e1")
    assert make_options({}).poll_interval == timedelta(seconds=10)


def test_variable_that_is_neither_true_nor_false_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBQUEUE_BURST", "maybe")
    _, [problem] = read_options({})
    assert "JOBQUEUE_BURST" in problem.message


def test_flag_that_cannot_be_used_is_named_as_it_is_typed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_options({"poll_interval": 0})
    assert str(caught.value).startswith(
        "--poll-interval must be a number of seconds from 0.01 to 3600; it is 0."
    )


def test_unknown_key_asks_whether_its_neighbour_was_meant() -> None:
    assert only_problem({"CONCURENCY": 1}) == (
        "JOBQUEUE has no key 'CONCURENCY'.",
        "Did you mean 'CONCURRENCY'?",
    )


def test_unknown_key_in_lower_case_asks_for_upper_case() -> None:
    assert only_problem({"queues": "mail"})[1] == "Did you mean 'QUEUES'?"


def test_unknown_key_without_a_neighbour_lists_the_keys() -> None:
    message, hint = only_problem({"ZZZ": 1})
    assert message == "JOBQUEUE has no key 'ZZZ'."
    assert hint == f"The keys are {', '.join(KEYS)}."


def test_unknown_key_that_is_no_text_is_a_problem_too() -> None:
    assert only_problem({5: 1})[0] == "JOBQUEUE has no key 5."


def test_setting_that_is_no_dict_is_refused() -> None:
    message, hint = only_problem(["CONCURRENCY"])
    assert message == "The setting JOBQUEUE is a dict, not ['CONCURRENCY']."
    assert hint == "Write JOBQUEUE = {…}."


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("CONCURRENCY", 0, "a whole number from 1 to 10000"),
        ("CONCURRENCY", True, "a whole number from 1 to 10000"),
        ("CONCURRENCY", "4", "a whole number from 1 to 10000"),
        ("MAX_ATTEMPTS", 0, "a whole number from 1 to 32000"),
        ("TIMEOUT", 0, "a number of seconds from 0.001 to"),
        ("TIMEOUT", float("nan"), "a number of seconds from 0.001 to"),
        ("TIMEOUT", float("inf"), "a number of seconds from 0.001 to"),
        ("TIMEOUT", timedelta(seconds=5), "a number of seconds from 0.001 to"),
        ("TIMEOUT", True, "a number of seconds from 0.001 to"),
        ("SHUTDOWN_TIMEOUT", -1, "a number of seconds from 0 to 86400"),
        ("DATABASE", "", "a text of 1 to 200 characters"),
        ("DATABASE", None, "a text of 1 to 200 characters"),
        ("LOG_FORMAT", "xml", "'text' or 'json'"),
        ("LOG_JOBS", "none", "'auto' or 'all'"),
        ("BURST", 1, "True or False"),
        ("QUEUES", 5, "names such as 'high:4,default,low', a list or a dict"),
        ("QUEUES", {"a": 0}, "a whole number from 1 to 1000 as the weight of 'a'"),
        ("QUEUES", "a:x", "a whole number from 1 to 1000 as the weight of 'a'"),
        ("QUEUES", "a:", "a whole number from 1 to 1000 as the weight of 'a'"),
        ("QUEUES", "a,b,a", "each queue once"),
        ("RETENTION", {"failed": 5}, '{"succeeded": seconds'),
        ("RETENTION", {"succeeded": -1}, '{"succeeded": seconds'),
        ("RETENTION", {"succeeded": True}, '{"succeeded": seconds'),
        ("RETENTION", {"succeeded": {"keep": -1}}, '{"succeeded": seconds'),
        ("RETENTION", {"succeeded": {"hold": 1}}, '{"succeeded": seconds'),
        ("MAX_PAYLOAD_BYTES", 0, "a whole number from 1 to"),
        ("AGING", -1, "a number of seconds from 0 to"),
    ],
)
def test_wrong_value_says_what_was_expected_and_what_came(
    key: str, value: object, expected: str
) -> None:
    message, hint = only_problem({key: value})
    assert message.startswith(f"JOBQUEUE[{key!r}] must be {expected}")
    assert message.endswith(f"; it is {value!r}.")
    has_default = KEYS[key].default not in (None, ())
    start = "Change it, or leave it out"
    assert hint.startswith(f"{start} for the default " if has_default else f"{start}.")


def test_wrong_queue_name_says_what_a_queue_name_is() -> None:
    assert only_problem({"QUEUES": "a b"})[0] == (
        "JOBQUEUE['QUEUES']: A queue name has 1 to 64 letters, digits, dots, dashes or "
        "underscores, not 'a b'. Choose a name such as 'mail' or 'reports.daily'."
    )


@pytest.mark.parametrize("key", sorted(KEYS))
def test_hint_shows_the_default_as_it_would_be_written(key: str) -> None:
    _, hint = only_problem({key: object()})
    assert "timedelta" not in hint
    assert "MISSING" not in hint


def test_wrong_value_leaves_the_default_and_the_others() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0, "BATCH_SIZE": 7}):
        options, _ = read_options({})
    assert (options.concurrency, options.batch_size) == (10, 7)


def test_several_problems_are_all_told() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0, "BATCH_SIZE": 0, "X": 1}):
        _, problems = read_options({})
    assert {problem.key for problem in problems} == {"CONCURRENCY", "BATCH_SIZE", "X"}


def test_problem_is_raised_with_its_hint() -> None:
    with (
        override_settings(JOBQUEUE={"CONCURENCY": 1}),
        pytest.raises(ConfigurationError) as caught,
    ):
        make_options({})
    assert str(caught.value) == (
        "JOBQUEUE has no key 'CONCURENCY'. Did you mean 'CONCURRENCY'?"
    )


def test_ttl_below_three_beats_is_a_contradiction() -> None:
    assert only_problem({"HEARTBEAT_INTERVAL": 11})[0] == (
        "HEARTBEAT_TTL must be at least three times HEARTBEAT_INTERVAL; it is 30 s "
        "against 11 s."
    )


def test_ttl_of_three_beats_is_enough() -> None:
    with override_settings(JOBQUEUE={"HEARTBEAT_INTERVAL": 10}):
        assert make_options({}).heartbeat_interval == timedelta(seconds=10)


def test_cap_below_the_base_is_a_contradiction() -> None:
    configured = {"BACKOFF_BASE": 10, "BACKOFF_CAP": 5}
    assert only_problem(configured)[0] == "BACKOFF_CAP must not be below BACKOFF_BASE."


def test_once_and_burst_are_a_contradiction() -> None:
    with pytest.raises(ConfigurationError, match="--once and --burst cannot"):
        make_options({"once": True, "burst": True})


@pytest.mark.parametrize(
    ("configured", "bounds"),
    [
        ({}, (1, 1)),
        ({"PROCESSES": 4}, (4, 4)),
        ({"MAX_PROCESSES": 8}, (1, 8)),
        ({"PROCESSES": 4, "MAX_PROCESSES": 8}, (4, 8)),
        ({"PROCESSES": 4, "MAX_PROCESSES": 2}, (2, 2)),
        ({"PROCESSES": 4, "MIN_PROCESSES": 2}, (2, 4)),
        ({"MIN_PROCESSES": 2, "MAX_PROCESSES": 8}, (2, 8)),
    ],
)
def test_processes_scale_between_bounds_of_which_each_may_be_left_out(
    configured: dict[str, int], bounds: tuple[int, int]
) -> None:
    with override_settings(JOBQUEUE=configured):
        assert make_options({}).process_bounds == bounds


def test_more_processes_at_least_than_at_most_are_a_contradiction() -> None:
    assert only_problem({"MIN_PROCESSES": 2}) == (
        "MIN_PROCESSES must not be above MAX_PROCESSES (which is PROCESSES if not "
        "given); it is 2 against 1.",
        "Raise MAX_PROCESSES or lower MIN_PROCESSES.",
    )


@pytest.mark.parametrize("other", ["once", "burst", "in_process"])
def test_reload_excludes_what_ends_or_has_nobody_to_start_it(other: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--reload .*Leave one of them out"):
        make_options({"reload": True, other: True})


def test_file_may_be_given_as_a_path() -> None:
    with override_settings(JOBQUEUE={"HEARTBEAT_FILE": Path("/run/beat")}):
        assert make_options({}).heartbeat_file == "/run/beat"


@pytest.mark.parametrize("value", [float("inf"), 1e300, 10**15])
def test_retention_too_long_for_a_date_is_refused(value: float) -> None:
    message, _ = only_problem({"RETENTION": {"succeeded": value}})
    assert message.startswith("JOBQUEUE['RETENTION'] must be ")


def test_retention_of_one_status_leaves_the_other_at_its_default() -> None:
    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": None}}):
        retention = make_options({}).retention
    assert retention == {
        "succeeded": Retention(),
        "cancelled": Retention(age=timedelta(days=7)),
    }


def test_retention_of_zero_is_an_age_of_zero() -> None:
    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": 0}}):
        retention = make_options({}).retention
    assert retention["succeeded"] == Retention(age=timedelta())


@pytest.mark.parametrize(
    ("value", "queues"),
    [
        ("mail", (("mail", 1),)),
        ("high:4,default,low", (("high", 4), ("default", 1), ("low", 1))),
        (["high:4", "low"], (("high", 4), ("low", 1))),
        ([("high", 4), ["low", 2]], (("high", 4), ("low", 2))),
        ({"high": 4, "low": 1}, (("high", 4), ("low", 1))),
    ],
)
def test_queues_are_read_in_every_form(
    value: object, queues: tuple[tuple[str, int], ...]
) -> None:
    assert parse_queues(value) == queues


@pytest.mark.parametrize("name", ["a", "A-Z.0_9", "x" * 64])
def test_good_queue_name_is_returned(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a\n", "ä", "a/b", None, 5, b"a"]
)
def test_bad_queue_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidQueueName) as caught:
        check_queue_name(name)
    assert str(caught.value) == (
        f"A queue name has 1 to 64 letters, digits, dots, dashes or underscores, "
        f"not {name!r}. Choose a name such as 'mail' or 'reports.daily'."
    )


def test_options_are_read_again_when_the_setting_changes() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 4}):
        assert get_options().concurrency == 4
    assert get_options().concurrency == 10


def test_every_duration_is_a_timedelta() -> None:
    options = make_options({})
    durations = [
        field.name for field in fields(Options) if str(field.type) == "timedelta"
    ]
    assert "poll_interval" in durations
    assert all(isinstance(getattr(options, name), timedelta) for name in durations)
