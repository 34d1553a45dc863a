"""Handlers that raise hostile exceptions.

Each case is a function that raises. Three handlers run the cases: in a thread, in a
thread inside a transaction, and on the event loop. Cases that are coroutines run on the
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


def exception_case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function as a case."""
    CASES[function.__name__] = function
    return function


# Texts that no database accepts, or that cannot be displayed.


@exception_case
def nul() -> None:
    raise ValueError("before\0after")


@exception_case
def lone_surrogates() -> None:
    raise ValueError("before\ud83d and \udfffafter")


@exception_case
def ten_megabytes() -> None:
    raise ValueError("start " + "x" * 10_000_000)


@exception_case
def ten_megabytes_of_nul() -> None:
    raise ValueError("start " + "\0" * 10_000_000)


@exception_case
def huge_args() -> None:
    raise ValueError(*range(300_000))


@exception_case
def control_characters() -> None:
    raise ValueError("start \x1b[31mred\x07\b\r\x85\u202e end")


@exception_case
def source_of_control_characters() -> None:
    _run_line("fail()  # \x1b[2J\x07\0\x7f\n", "<control characters>")


@exception_case
def source_of_lone_surrogates() -> None:
    _run_line("fail()  # \ud800\n", "<lone surrogates>")


def _run_line(line: str, path: str) -> None:
    # A traceback reads source lines from this cache.
    linecache.cache[path] = (len(line), None, [line], path)
    exec(compile("fail()", path, "exec"), {"fail": _fail})


@exception_case
def unreadable_source() -> None:
    _run_module("no/module.py", SourceLoader())


class SourceLoader:
    def get_source(self, name: str) -> NoReturn:
        # The source of the error raised here cannot be read either.
        _run_module("no/loader.py", self)
        raise AssertionError("unreachable")


def _run_module(path: str, loader: SourceLoader) -> None:
    names = {"__name__": "no", "__loader__": loader, "fail": _fail}
    exec(compile("fail()", path, "exec"), names)


@exception_case
def invalid_file_name() -> None:
    code = compile("fail()", "odd", "exec")
    exec(code.replace(co_filename="od\0d \ud800.py"), {"fail": _fail})


@exception_case
def class_name_of_a_megabyte() -> None:
    raise type("N" * 1_000_000, (Exception,), {})("start")


@exception_case
def class_name_with_nul() -> None:
    # type() refuses such a name, an assignment to __qualname__ does not.
    class Renamed(Exception):
        pass

    Renamed.__qualname__ = "Ren\0am\ud800ed"
    raise Renamed("start")


@exception_case
def class_without_a_module() -> None:
    raise type("NoModule", (Exception,), {"__module__": None})("start")


@exception_case
def class_whose_name_raises() -> None:
    class NamelessType(type):
        def __getattribute__(cls, name: str) -> NoReturn:
            sys.exit("no name")

    raise NamelessType("NameRaises", (Exception,), {})("start")


# Exceptions whose own methods raise or return wrong values.


@exception_case
def str_that_raises() -> None:
    class StrRaises(Exception):
        def __str__(self) -> NoReturn:
            raise self

        __repr__ = __str__

    raise StrRaises("start")


@exception_case
def str_that_exits() -> None:
    class StrExits(Exception):
        def __str__(self) -> NoReturn:
            sys.exit(1)

        __repr__ = __str__

    raise StrExits


@exception_case
def str_that_is_a_hostile_text() -> None:
    raise StrIsHostile("start")


class HostileText(str):
    def _refuse(self, *args: object) -> NoReturn:
        raise StrIsHostile("again")

    __len__ = __getitem__ = __iter__ = __add__ = __format__ = _refuse  # type: ignore[assignment]
    __str__ = encode = split = strip = replace = _refuse  # type: ignore[assignment]


class StrIsHostile(Exception):
    def __str__(self) -> str:
        return HostileText("a hostile text")


@exception_case
def args_that_cannot_be_shown() -> None:
    class Shy:
        def __repr__(self) -> NoReturn:
            raise KeyboardInterrupt

    raise ValueError(Shy(), Shy())


@exception_case
def repr_that_raises() -> None:
    class ReprRaises(Exception):
        def __repr__(self) -> NoReturn:
            raise RuntimeError("no repr")

    raise ReprRaises("start")


@exception_case
def class_attribute_that_raises() -> None:
    class ClassRaises(Exception):
        @property
        def __class__(self) -> NoReturn:
            raise RuntimeError("no class")

    raise ClassRaises("start")


@exception_case
def class_attribute_that_lies() -> None:
    class ClassLies(Exception):
        @property
        def __class__(self) -> Any:
            return Snooze

    raise ClassLies("start")


@exception_case
def attributes_that_raise() -> None:
    class AttributesRaise(Exception):
        def __getattribute__(self, name: str) -> NoReturn:
            raise SystemExit(f"no {name}")

    raise AttributesRaise("start")


@exception_case
def notes_that_raise() -> None:
    class NotesRaise(Exception):
        @property
        def __notes__(self) -> NoReturn:
            raise KeyboardInterrupt

    raise NotesRaise("start")


@exception_case
def not_to_be_pickled() -> None:
    class NotPicklable(Exception):
        def __reduce_ex__(self, protocol: object) -> NoReturn:
            raise TypeError("not to be pickled")

        __copy__ = __deepcopy__ = __getstate__ = __reduce_ex__  # type: ignore[assignment]

    error: Any = NotPicklable("start")
    error.lock = threading.Lock()
    raise error


@exception_case
def equal_to_everything() -> None:
    class EqualToAll(Exception):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def __bool__(self) -> NoReturn:
            raise RuntimeError("neither")

    raise EqualToAll("start")


# Chains.


@exception_case
def cyclic_context() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__ = second, first
    raise first


@exception_case
def cause_of_itself() -> None:
    error = ValueError("first")
    error.__cause__ = error
    raise error


@exception_case
def ten_thousand_causes() -> None:
    error: Exception = KeyError("the very first")
    for number in range(10_000):
        try:
            raise ValueError(f"link {number}") from error
        except ValueError as caught:
            error = caught
    raise error


@exception_case
def causes_without_end() -> None:
    class EndlessCauses(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            return type(self)("again")

    raise EndlessCauses("start")


@exception_case
def causes_that_raise() -> None:
    class CausesRaise(Exception):
        @property
        def __cause__(self) -> NoReturn:  # type: ignore[override]
            raise SystemExit("no cause")

        __context__ = __suppress_context__ = __traceback__ = __cause__  # type: ignore[assignment]

    raise CausesRaise("start")


@exception_case
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


@exception_case
def group() -> None:
    raise ExceptionGroup("start", [ValueError("one"), KeyError("two")])


@exception_case
def groups_in_groups() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(2_000):
        error = ExceptionGroup("outer", [error])
    raise error


@exception_case
def group_of_many() -> None:
    members = [ValueError(str(number)) for number in range(50_000)]
    raise ExceptionGroup("start", members)


@exception_case
def group_without_end() -> None:
    class EndlessGroup(ExceptionGroup[Exception]):
        @property
        def exceptions(self) -> Iterator[Exception]:  # type: ignore[override]
            return (ValueError(str(number)) for number in count())

    raise EndlessGroup("start", [ValueError("one")])


@exception_case
def group_of_all_kinds() -> None:
    inner = BaseExceptionGroup("inner", [SystemExit(3), Snooze(60), StopIteration()])
    members = [inner, KeyboardInterrupt(), ValueError("one"), GeneratorExit()]
    raise BaseExceptionGroup("start", members)


# Exceptions outside of Exception, or with a meaning to Python.


@exception_case
def system_exit() -> None:
    sys.exit("start")


@exception_case
def keyboard_interrupt() -> None:
    raise KeyboardInterrupt("start")


@exception_case
def generator_exit() -> None:
    raise GeneratorExit("start")


@exception_case
def stop_iteration() -> None:
    raise StopIteration("start")


@exception_case
def stop_async_iteration() -> None:
    raise StopAsyncIteration("start")


@exception_case
def cancelled_error() -> None:
    raise asyncio.CancelledError("start")


@exception_case
def timeout_error() -> None:
    raise TimeoutError("start")


@exception_case
def base_exception() -> None:
    class OwnBase(BaseException):
        pass

    raise OwnBase("start")


@exception_case
def memory_error() -> None:
    bytearray(sys.maxsize)


@exception_case
def recursion_error() -> None:
    def dive(depth: int) -> int:
        return dive(depth + 1) + 1

    dive(0)


@exception_case
def recursion_while_another_is_handled() -> None:
    def dive() -> None:
        dive_again()

    def dive_again() -> None:
        dive()

    try:
        dive()
    except RecursionError:
        dive_again()


@exception_case
def stop_iteration_in_a_generator() -> None:
    def generate() -> Iterator[int]:
        yield 1
        raise StopIteration("start")

    list(generate())


@exception_case
def generator_that_fails_while_it_is_closed() -> None:
    def generate() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("while closing")

    generator: Any = generate()
    next(generator)
    generator.close()


@exception_case
def syntax_error() -> None:
    compile("this is = no python\n", "<typed>", "exec")


@exception_case
def syntax_error_with_wrong_types() -> None:
    error = SyntaxError("start")
    error.filename, error.lineno, error.text = 5, "x", object()  # type: ignore[assignment]
    raise error


# Coroutines only.


@exception_case
async def exit_in_a_task() -> None:
    async def leave() -> None:
        sys.exit("start")

    await asyncio.gather(leave(), asyncio.Event().wait())


@exception_case
async def interrupt_in_a_task() -> None:
    async def leave() -> None:
        raise KeyboardInterrupt("start")

    await asyncio.create_task(leave())


@exception_case
async def task_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(60))
        tasks.create_task(_fail_later())


@exception_case
async def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("start")
    await asyncio.sleep(60)


@exception_case
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError("start")


@exception_case
async def close_the_loop() -> None:
    asyncio.get_running_loop().close()


@exception_case
async def async_generator() -> None:
    async def generate() -> Any:
        yield 1
        raise StopAsyncIteration("start")

    [number async for number in generate()]


@exception_case
async def deep_coroutines() -> None:
    await deep_coroutines()


@exception_case
async def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel("start")
    await asyncio.sleep(60)


async def _fail_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("in a task")


def _fail() -> None:
    raise ValueError("start")
