"""Exceptions from hell: handlers that raise what no handler should.

Each case is a function that raises. Three handlers run them: in a thread, in a thread
inside a transaction, and on the event loop; those written as coroutines run on the
event loop only.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NoReturn

from django_jobqueue import Snooze, job

CASES: dict[str, Callable[[], Any]] = {}


@job
def raise_in_thread(case: str) -> None:
    CASES[case]()


@job(atomic=True)
def raise_atomically(case: str) -> None:
    CASES[case]()


@job
async def raise_in_coroutine(case: str) -> None:
    raising = CASES[case]()
    if inspect.iscoroutine(raising):
        await raising


def hell(function: Callable[[], Any]) -> Callable[[], Any]:
    """Make a function that raises one of the cases."""
    CASES[function.__name__] = function
    return function


# Texts that no database takes, or nobody can read.


@hell
def nul() -> None:
    raise ValueError("before\0after")


@hell
def lone_surrogates() -> None:
    raise ValueError("before\ud83d and \udfffafter")


@hell
def ten_megabytes() -> None:
    raise ValueError("start " + "x" * 10_000_000)


@hell
def ten_megabytes_of_nul() -> None:
    raise ValueError("start " + "\0" * 10_000_000)


@hell
def huge_args() -> None:
    raise ValueError(*range(300_000))


@hell
def control_characters() -> None:
    raise ValueError("start \x1b[31mred\x07\b\r\x85\u202e end")


@hell
def source_of_control_characters() -> None:
    _run_line("fail()  # \x1b[2J\x07\0\x7f\n", "<control characters>")


@hell
def source_of_lone_surrogates() -> None:
    _run_line("fail()  # \ud800\n", "<lone surrogates>")


def _run_line(line: str, path: str) -> None:
    # What a traceback shows of the source comes from this cache.
    linecache.cache[path] = (len(line), None, [line], path)
    exec(compile("fail()", path, "exec"), {"fail": _fail})


@hell
def unreadable_source() -> None:
    _run_module("no/module.py", SourceLoader())


class SourceLoader:
    def get_source(self, name: str) -> NoReturn:
        # And so is the source of the error that comes of it.
        _run_module("no/loader.py", self)
        raise AssertionError("unreachable")


def _run_module(path: str, loader: SourceLoader) -> None:
    names = {"__name__": "no", "__loader__": loader, "fail": _fail}
    exec(compile("fail()", path, "exec"), names)


@hell
def file_name_that_is_none() -> None:
    code = compile("fail()", "odd", "exec")
    exec(code.replace(co_filename="od\0d \ud800.py"), {"fail": _fail})


@hell
def class_name_of_a_megabyte() -> None:
    raise type("N" * 1_000_000, (Exception,), {})("start")


@hell
def class_name_of_nul() -> None:
    # type() refuses such a name, an assignment to __qualname__ does not.
    class Renamed(Exception):
        pass

    Renamed.__qualname__ = "Ren\0am\ud800ed"
    raise Renamed("start")


@hell
def class_without_a_module() -> None:
    raise type("Homeless", (Exception,), {"__module__": None})("start")


@hell
def class_whose_name_raises() -> None:
    class Nameless(type):
        def __getattribute__(cls, name: str) -> NoReturn:
            sys.exit("no name")

    raise Nameless("Hidden", (Exception,), {})("start")


# Exceptions whose own code does harm.


@hell
def str_that_raises() -> None:
    class Silent(Exception):
        def __str__(self) -> NoReturn:
            raise self

        __repr__ = __str__

    raise Silent("start")


@hell
def str_that_exits() -> None:
    class Leaving(Exception):
        def __str__(self) -> NoReturn:
            sys.exit(1)

        __repr__ = __str__

    raise Leaving


@hell
def str_that_is_a_hostile_text() -> None:
    raise Worded("start")


class HostileText(str):
    def _refuse(self, *args: object) -> NoReturn:
        raise Worded("again")

    __len__ = __getitem__ = __iter__ = __add__ = __format__ = _refuse  # type: ignore[assignment]
    __str__ = encode = split = strip = replace = _refuse  # type: ignore[assignment]


class Worded(Exception):
    def __str__(self) -> str:
        return HostileText("a hostile text")


@hell
def args_that_cannot_be_shown() -> None:
    class Shy:
        def __repr__(self) -> NoReturn:
            raise KeyboardInterrupt

    raise ValueError(Shy(), Shy())


@hell
def repr_that_raises() -> None:
    class Unshown(Exception):
        def __repr__(self) -> NoReturn:
            raise RuntimeError("no repr")

    raise Unshown("start")


@hell
def class_attribute_that_raises() -> None:
    class Faceless(Exception):
        @property
        def __class__(self) -> NoReturn:
            raise RuntimeError("no class")

    raise Faceless("start")


@hell
def class_attribute_that_lies() -> None:
    class Pretender(Exception):
        @property
        def __class__(self) -> Any:
            return Snooze

    raise Pretender("start")


@hell
def attributes_that_raise() -> None:
    class Untouchable(Exception):
        def __getattribute__(self, name: str) -> NoReturn:
            raise SystemExit(f"no {name}")

    raise Untouchable("start")


@hell
def notes_that_raise() -> None:
    class Secretive(Exception):
        @property
        def __notes__(self) -> NoReturn:
            raise KeyboardInterrupt

    raise Secretive("start")


@hell
def not_to_be_pickled() -> None:
    class Closed(Exception):
        def __reduce_ex__(self, protocol: object) -> NoReturn:
            raise TypeError("not to be pickled")

        __copy__ = __deepcopy__ = __getstate__ = __reduce_ex__  # type: ignore[assignment]

    error: Any = Closed("start")
    error.lock = threading.Lock()
    raise error


@hell
def equal_to_everything() -> None:
    class Equal(Exception):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def __bool__(self) -> NoReturn:
            raise RuntimeError("neither")

    raise Equal("start")


# Chains.


@hell
def context_in_a_circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__ = second, first
    raise first


@hell
def cause_of_itself() -> None:
    error = ValueError("first")
    error.__cause__ = error
    raise error


@hell
def ten_thousand_causes() -> None:
    error: Exception = KeyError("the very first")
    for number in range(10_000):
        try:
            raise ValueError(f"link {number}") from error
        except ValueError as caught:
            error = caught
    raise error


@hell
def causes_without_end() -> None:
    class Endless(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            return type(self)("again")

    raise Endless("start")


@hell
def causes_that_raise() -> None:
    class Orphan(Exception):
        @property
        def __cause__(self) -> NoReturn:  # type: ignore[override]
            raise SystemExit("no cause")

        __context__ = __suppress_context__ = __traceback__ = __cause__  # type: ignore[assignment]

    raise Orphan("start")


@hell
def long_message_in_every_cause() -> None:
    text = "y" * 1_000_000
    error: Exception = KeyError("the very first")
    for number in range(90):
        try:
            raise ValueError(f"link {number} {text}") from error
        except ValueError as caught:
            error = caught
    raise error


# Groups.


@hell
def group() -> None:
    raise ExceptionGroup("start", [ValueError("one"), KeyError("two")])


@hell
def groups_in_groups() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(2_000):
        error = ExceptionGroup("outer", [error])
    raise error


@hell
def group_of_many() -> None:
    members = [ValueError(str(number)) for number in range(50_000)]
    raise ExceptionGroup("start", members)


@hell
def group_without_end() -> None:
    class Crowd(ExceptionGroup[Exception]):
        @property
        def exceptions(self) -> Iterator[Exception]:  # type: ignore[override]
            return (ValueError(str(number)) for number in count())

    raise Crowd("start", [ValueError("one")])


@hell
def group_of_all_kinds() -> None:
    inner = BaseExceptionGroup("inner", [SystemExit(3), Snooze(60), StopIteration()])
    members = [inner, KeyboardInterrupt(), ValueError("one"), GeneratorExit()]
    raise BaseExceptionGroup("start", members)


# What is no Exception, and what means something to Python.


@hell
def system_exit() -> None:
    sys.exit("start")


@hell
def keyboard_interrupt() -> None:
    raise KeyboardInterrupt("start")


@hell
def generator_exit() -> None:
    raise GeneratorExit("start")


@hell
def stop_iteration() -> None:
    raise StopIteration("start")


@hell
def stop_async_iteration() -> None:
    raise StopAsyncIteration("start")


@hell
def cancelled_error() -> None:
    raise asyncio.CancelledError("start")


@hell
def timeout_error() -> None:
    raise TimeoutError("start")


@hell
def base_exception() -> None:
    class Own(BaseException):
        pass

    raise Own("start")


@hell
def memory_error() -> None:
    bytearray(sys.maxsize)


@hell
def recursion_error() -> None:
    def dive(depth: int) -> int:
        return dive(depth + 1) + 1

    dive(0)


@hell
def recursion_while_another_is_handled() -> None:
    def dive() -> None:
        dive_again()

    def dive_again() -> None:
        dive()

    try:
        dive()
    except RecursionError:
        dive_again()


@hell
def stop_iteration_in_a_generator() -> None:
    def generate() -> Iterator[int]:
        yield 1
        raise StopIteration("start")

    list(generate())


@hell
def generator_that_fails_while_it_is_closed() -> None:
    def generate() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("while closing")

    generator: Any = generate()
    next(generator)
    generator.close()


@hell
def syntax_error() -> None:
    compile("this is = no python\n", "<typed>", "exec")


@hell
def syntax_error_without_sense() -> None:
    error = SyntaxError("start")
    error.filename, error.lineno, error.text = 5, "x", object()  # type: ignore[assignment]
    raise error


# What only a coroutine can do.


@hell
async def exit_in_a_task() -> None:
    async def leave() -> None:
        sys.exit("start")

    await asyncio.gather(leave(), asyncio.Event().wait())


@hell
async def interrupt_in_a_task() -> None:
    async def leave() -> None:
        raise KeyboardInterrupt("start")

    await asyncio.create_task(leave())


@hell
async def task_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(60))
        tasks.create_task(_fail_later())


@hell
async def cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("start")
    await asyncio.sleep(60)


@hell
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError("start")


@hell
async def close_the_loop() -> None:
    asyncio.get_running_loop().close()


@hell
async def async_generator() -> None:
    async def generate() -> Any:
        yield 1
        raise StopAsyncIteration("start")

    [number async for number in generate()]


@hell
async def deep_coroutines() -> None:
    await deep_coroutines()


@hell
async def cancel_everybody() -> None:
    for task in asyncio.all_tasks():
        task.cancel("start")
    await asyncio.sleep(60)


async def _fail_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("in a task")


def _fail() -> None:
    raise ValueError("start")
