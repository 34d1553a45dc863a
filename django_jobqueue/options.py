"""The only reader of settings and environment: one frozen Options value.

Precedence: command-line flag, environment, the JOBQUEUE setting, default. Durations are
seconds outside and timedeltas inside; they are converted here and nowhere else.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from .exceptions import ConfigurationError, InvalidQueueName
from .suggestions import suggest

QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# Names that other tools use for the same option, with the factor to our unit.
ENVIRONMENT_ALIASES = {
    "POLL_INTERVAL": ("JOB_POLL_INTERVAL", 0.001),
    "BATCH_SIZE": ("JOB_BATCH_SIZE", 1),
    "MAX_ATTEMPTS": ("JOB_MAX_RETRIES", 1),
    "CONCURRENCY": ("WORKER_CONCURRENCY", 1),
}


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs are kept: `age` (None: for good), or the newest `keep`."""

    age: timedelta | None = None
    keep: int | None = None

    @property
    def delay(self) -> timedelta | None:
        """How long after its end a job may first be pruned; None: never.

        Under a count that is at once: prune decides which are the newest.
        """
        return self.age if self.keep is None else timedelta()


def check_queue_name(name: object) -> str:
    """Return the name, or raise InvalidQueueName."""
    if isinstance(name, str) and QUEUE_NAME.fullmatch(name):
        return name
    raise InvalidQueueName(
        f"A queue name has 1 to 64 letters, digits, dots, dashes or underscores, "
        f"not {name!r}. Choose a name such as 'mail' or 'reports.daily'."
    )


def parse_queues(value: Any) -> tuple[tuple[str, int], ...]:
    """Read `high:4,default,low`, a list of such names, or a dict of name → weight."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = [_parse_weight(part) for part in value]
    else:
        raise ValueError("names such as 'high:4,default,low', a list or a dict")
    for name, weight in pairs:
        check_queue_name(name)
        if type(weight) is not int or not 1 <= weight <= 1000:
            raise ValueError(f"a whole number from 1 to 1000 as the weight of {name!r}")
    if len(dict(pairs)) != len(pairs):
        raise ValueError("each queue once")
    if not pairs:
        raise ValueError("at least one name; leave it out to serve all queues")
    return tuple(pairs)


def _parse_weight(part: Any) -> tuple[str, int]:
    if isinstance(part, tuple | list) and len(part) == 2:
        return part[0], part[1]
    name, colon, weight = str(part).partition(":")
    if colon and not (weight.isascii() and weight.isdecimal()):
        raise ValueError(f"a whole number from 1 to 1000 as the weight of {name!r}")
    return name, int(weight) if colon else 1


def _parse_names(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    is_list = isinstance(value, list | tuple)
    if is_list and all(isinstance(name, str) and ":" not in name for name in value):
        return tuple(name for name, _ in parse_queues(value))
    raise ValueError("names such as 'mail,reports' without weights, or a list")


def _parse_paths(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    is_list = isinstance(value, list | tuple)
    if is_list and all(isinstance(path, str) and "." in path for path in value):
        return tuple(value)
    raise ValueError("a list of dotted paths such as 'shop.middleware.set_language'")


def _parse_retention(value: Any) -> dict[str, Retention]:
    expected = '{"succeeded": seconds or {"keep": count} or None, "cancelled": …}'
    if not isinstance(value, Mapping) or set(value) - {"succeeded", "cancelled"}:
        raise ValueError(expected)
    kept = dict(DEFAULT_RETENTION)
    for status, limit in value.items():
        match limit:
            case None:
                kept[status] = Retention()
            case {"keep": int(count), **rest} if (
                not rest and count >= 0 and not isinstance(count, bool)
            ):
                kept[status] = Retention(keep=count)
            case int() | float() if 0 <= limit <= CENTURY_SECONDS and not isinstance(
                limit, bool
            ):
                kept[status] = Retention(age=timedelta(seconds=limit))
            case _:
                raise ValueError(expected)
    return kept


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and low <= value <= high:
            return int(value)
        raise ValueError(f"a whole number from {low} to {high}")

    return read


def _seconds(low: float, high: float = 10 * 365 * 86400) -> Callable[[Any], timedelta]:
    def read(value: Any) -> timedelta:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value) and low <= value <= high:
            return timedelta(seconds=value)
        # Not {:g} alone, which writes 10 years as 3.1536e+08.
        raise ValueError(f"a number of seconds from {low:.12g} to {high:.12g}")

    return read


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _memory(value: Any) -> int:
    """Read a number of bytes, or a text such as 512M."""
    match = re.fullmatch(r"(\d{1,15})([KMG]?)", str(value).strip().upper())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if isinstance(value, int | str) and not isinstance(value, bool) and size >= 1 << 20:
        return size
    raise ValueError("at least one megabyte, as bytes or as a text such as '512M'")


def _text(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= 200:
        return value
    raise ValueError("a text of 1 to 200 characters")


def _path(value: Any) -> str:
    if isinstance(value, str | os.PathLike) and 0 < len(os.fspath(value)) <= 4096:
        return str(value)
    raise ValueError("the path of a file")


def _choice(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value in choices:
            return str(value)
        raise ValueError(" or ".join(repr(choice) for choice in choices))

    return read


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("True or False")


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _option(default: Any, read: Callable[[Any], Any], cast: Any = str) -> Any:
    # A mutable default would be shared; every default here is immutable or copied.
    return field(default=default, metadata={"read": read, "cast": cast})


CENTURY_SECONDS = 100 * 365 * 86400
DEFAULT_RETENTION = {
    "succeeded": Retention(age=timedelta(days=1)),
    "cancelled": Retention(age=timedelta(days=7)),
}
_SECOND = timedelta(seconds=1)
_BYTES = _whole(1, 1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every option, its default, and (where it is not plain) its unit.

    docs/reference/settings.md lists the same fields in the same order.
    """

    # The alias of the database that holds the jobs.
    database: str = _option("default", _text)
    # Jobs that one process runs at a time.
    concurrency: int = _option(10, _whole(1, 10_000), int)
    processes: int = _option(1, _whole(1, 1000), int)
    # Between these the number of processes follows the backlog; None: as PROCESSES.
    min_processes: int | None = _option(None, _or_none(_whole(1, 1000)), int)
    max_processes: int | None = _option(None, _or_none(_whole(1, 1000)), int)
    # How long fewer processes must have been enough before the others are stopped.
    scale_down_after: timedelta = _option(30 * _SECOND, _seconds(0, 86400), float)
    # (name, weight) of the queues to serve; None: all, new ones included.
    queues: tuple[tuple[str, int], ...] | None = _option(None, _or_none(parse_queues))
    exclude_queues: tuple[str, ...] = _option((), _parse_names)
    # How long an idle worker sleeps before it polls again.
    poll_interval: timedelta = _option(_SECOND, _seconds(0.01, 3600), float)
    # The most jobs one claim takes.
    batch_size: int = _option(400, _whole(1, 10_000), int)
    # How long a stopping worker waits for its running jobs.
    shutdown_timeout: timedelta = _option(25 * _SECOND, _seconds(0, 86400), float)
    # How long an attempt may take, unless its handler or job says otherwise.
    timeout: timedelta = _option(900 * _SECOND, _seconds(0.001), float)
    # How long an attempt has left to end after its timeout or cancellation.
    grace: timedelta = _option(5 * _SECOND, _seconds(0, 3600), float)
    max_attempts: int = _option(3, _whole(1, 32_000), int)
    backoff_base: timedelta = _option(_SECOND, _seconds(0), float)
    backoff_cap: timedelta = _option(300 * _SECOND, _seconds(0), float)
    heartbeat_interval: timedelta = _option(5 * _SECOND, _seconds(0.05, 3600), float)
    # After this long without a heartbeat a worker counts as dead; its jobs are rescued.
    heartbeat_ttl: timedelta = _option(30 * _SECOND, _seconds(0.15, 86400), float)
    # How many crashes of its process, and lost leases, make a job dead.
    max_crashes: int = _option(3, _whole(1, 1000), int)
    max_lost: int = _option(10, _whole(1, 1000), int)
    # How long a job waits for an unknown handler (a deploy in progress).
    unknown_handler_grace: timedelta = _option(3600 * _SECOND, _seconds(0), float)
    max_payload_bytes: int = _option(1 << 20, _BYTES, int)
    max_result_bytes: int = _option(1 << 20, _BYTES, int)
    retention: dict[str, Retention] = field(
        default_factory=DEFAULT_RETENTION.copy,
        metadata={"read": _parse_retention, "cast": "json"},
    )
    # What one level of priority is worth in waiting time. 100 years: strict priority.
    aging: timedelta = _option(3600 * _SECOND, _seconds(0, 100 * 366 * 86400), float)
    # Dotted paths of what runs around every handler, the outermost first.
    middleware: tuple[str, ...] = _option((), _parse_paths)
    # For runworker only, from here to log_jobs.
    name: str | None = _option(None, _or_none(_text))
    max_jobs: int | None = _option(None, _or_none(_whole(1, 1 << 40)), int)
    # Resident bytes above which a process is replaced.
    max_memory: int | None = _option(None, _or_none(_memory))
    # No supervisor: everything in one process, for debuggers.
    in_process: bool = _option(False, _flag, bool)
    once: bool = _option(False, _flag, bool)
    burst: bool = _option(False, _flag, bool)
    # Stop after this long without a job.
    idle_timeout: timedelta | None = _option(None, _or_none(_seconds(0.1)), float)
    # Restart the processes when the project's code changes.
    reload: bool = _option(False, _flag, bool)
    # The address of /live and /ready. Port None: no endpoint. 0: the system chooses.
    health_host: str = _option("127.0.0.1", _text)
    health_port: int | None = _option(None, _or_none(_whole(0, 65535)), int)
    # Touched at each confirmed beat.
    heartbeat_file: str | None = _option(None, _or_none(_path))
    log_format: str = _option("text", _choice("text", "json"))
    log_jobs: str = _option("auto", _choice("auto", "all"))
    # For web processes only: start a worker beside each.
    embed_worker: bool = _option(False, _flag, bool)

    @property
    def process_bounds(self) -> tuple[int, int]:
        """The fewest and the most processes; equal if nothing scales."""
        most = self.max_processes or self.processes
        return self.min_processes or min(self.processes, most), most


KEYS = {option.name.upper(): option for option in fields(Options)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the options; checks and ConfigurationError show it."""

    key: str
    message: str
    hint: str


@cache
def get_options() -> Options:
    """Read the options without any flag. Raises ConfigurationError."""
    return make_options({})


def is_development() -> bool:
    """Return whether a developer reads the log: DEBUG, or a terminal at stderr."""
    try:
        return bool(settings.DEBUG) or sys.stderr.isatty()
    # It is closed, or None.
    except (AttributeError, ValueError):
        return False


def make_options(flags: Mapping[str, Any]) -> Options:
    """Read the options; `flags` (by field name, None: not given) take precedence."""
    options, problems = read_options(flags)
    if problems:
        raise ConfigurationError(f"{problems[0].message} {problems[0].hint}")
    return options


def read_options(flags: Mapping[str, Any]) -> tuple[Options, list[Problem]]:
    """Return the options, with the default in place of every value that is wrong."""
    configured = getattr(settings, "JOBQUEUE", {})
    if not isinstance(configured, Mapping):
        message = f"The setting JOBQUEUE is a dict, not {configured!r}."
        return Options(), [Problem("JOBQUEUE", message, "Write JOBQUEUE = {…}.")]
    problems = [_describe_unknown(key) for key in configured if key not in KEYS]
    values = {}
    for key, option in KEYS.items():
        try:
            found = next(_find_values(key, option, configured, flags), None)
            if found is not None:
                source, value = found
                values[option.name] = option.metadata["read"](value)
        except (ValueError, InvalidQueueName) as error:
            expected = str(error).rstrip(".")
            message = f"{source} must be {expected}; it is {value!r}."
            if isinstance(error, InvalidQueueName):
                message = f"{source}: {error}"
            hint = f"Change it, or leave it out{_show_default(option)}."
            problems.append(Problem(key, message, hint))
    return Options(**values), problems + _find_contradictions(Options(**values))


def _show_default(option: Any) -> str:
    default = option.default
    if default is None or default == ():
        return ""
    if isinstance(default, timedelta):
        return f" for the default of {default.total_seconds():.12g} s"
    if default is MISSING:
        return (
            " for the default of one day for succeeded and seven days for cancelled "
            "jobs"
        )
    return f" for the default {default!r}"


def _find_values(
    key: str, option: Any, configured: Mapping[str, Any], flags: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield (source, value), the one that takes precedence first."""
    if flags.get(option.name) is not None:
        yield f"--{option.name.replace('_', '-')}", flags[option.name]
    for name, factor in ((f"JOBQUEUE_{key}", 1), ENVIRONMENT_ALIASES.get(key, ("", 1))):
        if name and os.environ.get(name):
            yield (
                f"The environment variable {name}",
                _read_variable(name, option.metadata["cast"], factor),
            )
    if key in configured:
        yield f"JOBQUEUE[{key!r}]", configured[key]


def _read_variable(name: str, cast: Any, factor: float) -> Any:
    # Imported here: most processes have no JOBQUEUE_ variable and need no environ.
    import environ

    env = environ.Env()
    text: str = env.str(name)
    try:
        if cast == "json":
            return env.json(name)
        # Not environ's own float and bool: they read "1e3" as 13 and "maybe" as False.
        if cast is bool:
            return _BOOLEANS.get(text.strip().lower(), text)
        value = cast(text.strip())
    except ValueError:
        return text
    return value * factor if factor != 1 else value


_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _describe_unknown(key: Any) -> Problem:
    known = f"The keys are {', '.join(KEYS)}."
    hint = suggest(str(key).upper(), KEYS, otherwise=known)
    return Problem(str(key), f"JOBQUEUE has no key {key!r}.", hint)


def _find_contradictions(options: Options) -> list[Problem]:
    problems = []
    if options.heartbeat_ttl < 3 * options.heartbeat_interval:
        problems.append(
            Problem(
                "HEARTBEAT_TTL",
                "HEARTBEAT_TTL must be at least three times HEARTBEAT_INTERVAL; it is "
                f"{options.heartbeat_ttl.total_seconds():g} s against "
                f"{options.heartbeat_interval.total_seconds():g} s.",
                "A worker that misses one heartbeat must not count as dead.",
            )
        )
    if options.backoff_cap < options.backoff_base:
        problems.append(
            Problem(
                "BACKOFF_CAP",
                "BACKOFF_CAP must not be below BACKOFF_BASE.",
                "Raise the cap or lower the base.",
            )
        )
    served = {name for name, _ in options.queues or ()}
    if served and served <= set(options.exclude_queues):
        problems.append(
            Problem(
                "EXCLUDE_QUEUES",
                f"EXCLUDE_QUEUES leaves nothing of QUEUES to serve: "
                f"{', '.join(sorted(served))}.",
                "Serve a queue that is not excluded, or leave QUEUES out to serve all.",
            )
        )
    if options.once and options.burst:
        problems.append(
            Problem("BURST", "--once and --burst cannot be combined.", "Choose one.")
        )
    fewest, most = options.process_bounds
    if fewest > most:
        problems.append(
            Problem(
                "MIN_PROCESSES",
                "MIN_PROCESSES must not be above MAX_PROCESSES (which is PROCESSES if "
                f"not given); it is {fewest} against {most}.",
                "Raise MAX_PROCESSES or lower MIN_PROCESSES.",
            )
        )
    return problems + _find_contradictions_of_reload(options)


def _find_contradictions_of_reload(options: Options) -> list[Problem]:
    problems = []
    if options.reload and (options.once or options.burst):
        problems.append(
            Problem(
                "RELOAD",
                "--reload cannot be combined with --once or --burst: they end by "
                "themselves.",
                "Leave one of them out.",
            )
        )
    if options.reload and options.in_process:
        problems.append(
            Problem(
                "RELOAD",
                "--reload needs a supervisor, which --in-process does without.",
                "Leave one of them out.",
            )
        )
    return problems


def _forget_options(*, setting: str, **kwargs: Any) -> None:
    if setting == "JOBQUEUE":
        get_options.cache_clear()


setting_changed.connect(_forget_options)
