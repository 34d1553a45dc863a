"""Handlers: @job on a function, @handler on a class.

The decorators check the options, make a Handler and register it. What a job needs to
run (call, policy, signature) is asked of that Handler.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from .backoff import Backoff, BackoffCallable, Seconds, exponential, read_backoff
from .context import JobContext
from .exceptions import HandlerError, InvalidArguments, InvalidOption
from .joboptions import (
    GivenOptions,
    RowBackoff,
    read_job_options,
    read_max_attempts,
    read_priority,
    read_timeout,
)
from .options import Options, check_queue_name
from .outcomes import RetryPolicy
from .registry import find_app_label, register

if TYPE_CHECKING:
    from .lifecycle.enqueue import JobSpec
    from .models import Job

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="type[BaseHandler]")

# Of a handler with **kwargs there may be any number.
MOST_SHAPES = 100
JOB_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Mapping[Any, Any]


class HandlerOptions(TypedDict, total=False):
    """What the decorators take beside takes_context, for type checkers."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Seconds | None
    backoff: RowBackoff | BackoffCallable | None
    retry_on: RetryOn | None
    discard_on: type[BaseException] | tuple[type[BaseException], ...]
    databases: list[str] | tuple[str, ...]
    atomic: bool


class Handler(Generic[P, R]):
    """A registered function or class; calling it runs the plain function.

    P is what a job of it takes, and so do enqueue() and spec().
    """

    def __init__(
        self,
        target: Callable[P, R] | type[BaseHandler],
        *,
        name: str,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: timedelta | float | None = None,
        backoff: Any = None,
        retry_on: RetryOn | None = None,
        discard_on: type[BaseException] | tuple[type[BaseException], ...] = (),
        databases: list[str] | tuple[str, ...] = (),
        atomic: bool = False,
        takes_context: bool = False,
    ) -> None:
        # Not its __dict__: methods of a class would hide those of this one.
        update_wrapper(self, target, updated=())
        self.target = cast(Any, target)
        self.name = _check_name(name)
        self.is_class = isinstance(target, type)
        self.function: Callable[..., Any] = (
            self.target.execute if self.is_class else self.target
        )
        self.is_async = inspect.iscoroutinefunction(self.function)
        self.takes_context = takes_context
        self.needs_context = takes_context or self.is_class
        self.signature = inspect.signature(self.function)
        self.atomic = atomic
        self.databases = tuple(databases)
        self.given: GivenOptions = {}
        # Counts and names of arguments that fit: to bind them took a sixth of a bulk.
        self._shapes: set[tuple[Any, ...]] = set()
        try:
            self.queue = "default" if queue is None else check_queue_name(queue)
            self.priority = 0 if priority is None else read_priority(priority)
            self.max_attempts = (
                None if max_attempts is None else read_max_attempts(max_attempts)
            )
            self.timeout = None if timeout is None else read_timeout(timeout)
            self.backoff = None if backoff is None else read_backoff(backoff)
            self.retry_on = _read_retry_on(retry_on)
            self.discard_on = _read_classes("discard_on", discard_on)
        except InvalidOption as error:
            raise HandlerError(f"The handler {name!r}: {error}") from error
        self._check()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"

    def using(self, **options: Unpack[GivenOptions]) -> Self:
        """Return this handler with options for the jobs enqueued through it."""
        read_job_options({**self.given, **options})
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.given = {**self.given, **options}
        return copy

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> JobSpec:
        """Return a JobSpec for enqueue_many."""
        from .lifecycle.enqueue import JobSpec

        return JobSpec(self.name, self.make_payload(args, kwargs), **self.given)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue one call; in the caller's transaction, if there is one."""
        from .models import Job

        payload = self.make_payload(args, kwargs)
        return Job.objects.enqueue(self.name, payload, **self.given)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """See enqueue()."""
        from .models import Job

        payload = self.make_payload(args, kwargs)
        return await Job.objects.aenqueue(self.name, payload, **self.given)

    def make_payload(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Give positional arguments their names: a payload has no positions."""
        if not args:
            return dict(kwargs)
        if self.is_class:
            raise InvalidArguments(
                f"{self.name} takes keyword arguments only; they become its params."
            )
        names = list(self.signature.parameters)[1 if self.takes_context else 0 :]
        if len(args) > len(names):
            raise InvalidArguments(self._describe_arguments("too many arguments"))
        named = dict(zip(names, args, strict=False))
        if repeated := named.keys() & kwargs.keys():
            fault = f"two values for {', '.join(sorted(repeated))}"
            raise InvalidArguments(self._describe_arguments(fault))
        return {**named, **kwargs}

    def check_arguments(
        self, payload: Mapping[str, Any], args: Sequence[Any] = ()
    ) -> None:
        """Raise InvalidArguments if the handler cannot be called with these."""
        shape = (len(args), *payload)
        if self.is_class or shape in self._shapes:
            return
        first = (None,) if self.takes_context else ()
        try:
            self.signature.bind(*first, *args, **payload)
        except TypeError as error:
            raise InvalidArguments(self._describe_arguments(str(error))) from None
        if len(self._shapes) < MOST_SHAPES:
            self._shapes.add(shape)

    def call(
        self, context: JobContext | None, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        """Run the handler; for an async one, return its coroutine."""
        if self.is_class:
            instance = self.target()
            instance.context = context
            return instance.execute(payload)
        if self.takes_context:
            return self.function(context, *args, **payload)
        return self.function(*args, **payload)

    def make_policy(
        self,
        options: Options,
        *,
        max_attempts: int | None,
        backoff: Backoff | None,
    ) -> RetryPolicy:
        """Say what happens on failure: as the job says, then the handler, then the
        settings."""
        default = exponential(options.backoff_base, options.backoff_cap)
        chosen: Backoff | BackoffCallable = backoff or self.backoff or default
        return RetryPolicy(
            max_attempts=max_attempts or self.max_attempts or options.max_attempts,
            backoff=chosen,
            retry_on=self.retry_on,
            discard_on=self.discard_on,
        )

    def _describe_arguments(self, fault: str) -> str:
        parameters = list(self.signature.parameters.values())
        shown = self.signature.replace(
            parameters=parameters[1:] if self.takes_context else parameters,
            return_annotation=inspect.Signature.empty,
        )
        return (
            f"{self.name} takes {shown}: {fault}. The keys of the payload are the "
            f"handler's keyword arguments."
        )

    def _check(self) -> None:
        first = next(iter(self.signature.parameters), None)
        if self.takes_context and not self.is_class and first != "context":
            raise HandlerError(
                f"The handler {self.name!r} has takes_context=True, so its first "
                f"argument must be named 'context'; it is {first!r}."
            )
        self._check_names()
        if self.is_async and (self.atomic or self.databases):
            raise HandlerError(
                f"The handler {self.name!r} is async, and Django has no async "
                f"transactions: atomic=True and databases=… need a plain function."
            )

    def _check_names(self) -> None:
        positional = [
            name
            for name, parameter in self.signature.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        ]
        if positional and not self.is_class:
            raise HandlerError(
                f"The handler {self.name!r} has positional-only arguments "
                f"({', '.join(positional)}); a payload only has names. Remove the '/'."
            )


class ContextHandler(Handler[P, R]):
    """A handler with takes_context=True: only who calls it passes the context."""

    def __call__(  # type: ignore[override]
        self, context: JobContext, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return cast(R, self.function(context, *args, **kwargs))


class BaseHandler:
    """A handler with a class of its own: define `execute(self, params)`, sync or async.

    One instance is made for each attempt; `self.context` is its JobContext.
    """

    context: JobContext
    handler: ClassVar[Handler[..., Any]]

    def execute(self, params: dict[str, Any]) -> Any:
        raise HandlerError(f"{type(self).__name__} must define execute(self, params).")

    @classmethod
    def using(cls, **options: Unpack[GivenOptions]) -> Handler[..., Any]:
        """See Handler.using()."""
        return cls.handler.using(**options)

    @classmethod
    def spec(cls, **params: Any) -> JobSpec:
        """See Handler.spec()."""
        return cls.handler.spec(**params)

    @classmethod
    def enqueue(cls, **params: Any) -> Job:
        """See Handler.enqueue()."""
        return cls.handler.enqueue(**params)

    @classmethod
    async def aenqueue(cls, **params: Any) -> Job:
        """See Handler.aenqueue()."""
        return await cls.handler.aenqueue(**params)


@overload
def job(name: Callable[P, R], /) -> Handler[P, R]: ...
@overload
def job(
    name: str | None = None,
    /,
    *,
    takes_context: Literal[False] = False,
    **options: Unpack[HandlerOptions],
) -> Callable[[Callable[P, R]], Handler[P, R]]: ...
@overload
def job(
    name: str | None = None,
    /,
    *,
    takes_context: Literal[True],
    **options: Unpack[HandlerOptions],
) -> Callable[[Callable[Concatenate[JobContext, P], R]], ContextHandler[P, R]]: ...
def job(name: Any = None, /, **options: Any) -> Any:
    """Make a function a handler: `@job`, `@job("name")` or `@job(queue="mail")`."""
    if callable(name):
        return _register_function(name, None, {})

    def decorate(function: Callable[..., R]) -> Handler[..., R]:
        return _register_function(function, name, options)

    return decorate


def handler(name: str, **options: Unpack[HandlerOptions]) -> Callable[[C], C]:
    """Make a subclass of BaseHandler a handler: `@handler("email")`."""

    if not isinstance(name, str):
        raise HandlerError(f"Write @handler('name') on {name!r}: a class needs a name.")

    def decorate(cls: C) -> C:
        if not (isinstance(cls, type) and issubclass(cls, BaseHandler)):
            raise HandlerError(
                f"@handler({name!r}) goes on a subclass of BaseHandler, not on "
                f"{cls!r}; for a function there is @job."
            )
        if cls.execute is BaseHandler.execute:
            raise HandlerError(f"{cls.__name__} must define execute(self, params).")
        cls.handler = Handler(cls, name=name, **_check_options(name, {**options}))
        register(cls.handler)
        return cls

    return decorate


def _register_function(
    function: Callable[..., R], name: str | None, options: dict[str, Any]
) -> Handler[..., R]:
    if isinstance(function, type) or not callable(function):
        raise HandlerError(
            f"@job goes on a function, not on {function!r}; for a class there is "
            f"@handler."
        )
    if name is None:
        name = f"{find_app_label(function.__module__)}.{function.__name__}"
    kind = ContextHandler if options.get("takes_context") else Handler
    made = kind(function, name=name, **_check_options(name, options))
    register(made)
    return made


def _check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    parameters = set(inspect.signature(Handler.__init__).parameters)
    known = parameters - {"self", "target", "name"}
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise HandlerError(f"The handler {name!r} has no option {option!r}.{hint}")
    return options


def _check_name(name: Any) -> str:
    if isinstance(name, str) and JOB_TYPE.fullmatch(name):
        return name
    raise HandlerError(
        f"A job's name has 1 to 200 letters, digits, dots, colons, dashes or "
        f"underscores, not {name!r}. Write @job('app.name')."
    )


def _read_classes(option: str, value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple | list) else (value,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise InvalidOption(
                f"{option} takes an exception class or a tuple of them, not {cls!r}."
            )
    return tuple(classes)


def _read_retry_on(
    value: RetryOn | None,
) -> dict[type[BaseException], Backoff | BackoffCallable | None] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        classes = _read_classes("retry_on", tuple(value))
        return {
            cls: None if value[cls] is None else read_backoff(value[cls])
            for cls in classes
        }
    return dict.fromkeys(_read_classes("retry_on", value))
