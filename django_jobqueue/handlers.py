"""Handlers: @job on a function, @handler on a class.

The decorators check the options, build a Handler and register it. The Handler knows
what a worker needs to run a job: how to call the function, its signature, its retries.
"""

from __future__ import annotations

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

from .arguments import describe_misfit
from .backoff import Backoff, BackoffCallable, Seconds, exponential, read_backoff
from .context import JobContext
from .exceptions import HandlerError, InvalidArguments, InvalidOption
from .joboptions import (
    JOB_OPTIONS,
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
from .suggestions import suggest_option

if TYPE_CHECKING:
    from .models import Job
    from .storage.new_jobs import JobSpec

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="type[BaseHandler]")

# A handler with **kwargs accepts any number of them.
MAX_SHAPES = 100
_ENQUEUE = "Write .enqueue(…) with the arguments of {name}."
_ENQUEUE_LATER = "Write .using(delay=…).enqueue(…): options first, then arguments."
# Methods of Celery, Dramatiq, RQ, Huey and Procrastinate → what to write here.
FOREIGN_METHODS = {
    "apply": "Call {name} directly to run it without a job.",
    "apply_async": _ENQUEUE_LATER,
    "call_local": "Call {name} directly to run it without a job.",
    "configure": _ENQUEUE_LATER,
    "defer": _ENQUEUE,
    "defer_async": "Write await ….aenqueue(…) with the arguments of {name}.",
    "delay": _ENQUEUE,
    "delay_on_commit": _ENQUEUE + " A job starts only after the commit.",
    "enqueue_at": "Write .using(run_at=…).enqueue(…): options first, then arguments.",
    "enqueue_in": _ENQUEUE_LATER,
    "retry": "Raise an exception to retry, or Snooze(delay) to run again later.",
    "s": "Write .spec(…) for Job.objects.enqueue_many().",
    "schedule": _ENQUEUE_LATER,
    "send": _ENQUEUE,
    "send_with_options": _ENQUEUE_LATER,
}
JOB_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Mapping[Any, Any]


class HandlerOptions(TypedDict, total=False):
    """The options of the decorators except takes_context, for type checkers."""

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

    P are the arguments of a job, and so of enqueue() and spec().
    """

    # What using() takes, for the hints in errors.
    using_options: ClassVar[tuple[str, ...]] = JOB_OPTIONS

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
        # Without __dict__: methods of the class would hide those of Handler.
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
        # Shapes of arguments that fit: binding each call took a sixth of a bulk.
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
        self._check_signature()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"

    if not TYPE_CHECKING:
        # For a type checker a missing attribute is an error already.
        def __getattr__(self, name: str) -> Any:
            """Suggest our method for one of another job system."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hint := FOREIGN_METHODS.get(name):
                # With obj Python would append its own suggestion.
                hint = hint.format(name=self.__dict__.get("name"))
                raise AttributeError(f"{text}. {hint}", name=name, obj=None)
            raise AttributeError(text, name=name, obj=self)

    def using(self, **options: Unpack[GivenOptions]) -> Self:
        """Return this handler with options for the jobs enqueued through it."""
        read_job_options({**self.given, **options})
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.given = {**self.given, **options}
        return copy

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> JobSpec:
        """Return a JobSpec for enqueue_many."""
        from .storage.new_jobs import JobSpec

        return JobSpec(self.name, self.make_payload(args, kwargs), **self.given)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue one call, in the caller's transaction if there is one."""
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
        """Turn positional arguments into keyword arguments, as a payload needs."""
        if not args:
            return dict(kwargs)
        if self.is_class:
            raise InvalidArguments(
                f"{self.name} takes keyword arguments only; execute() gets them as "
                f"params."
            )
        names = list(self.signature.parameters)[1 if self.takes_context else 0 :]
        if len(args) > len(names):
            raise InvalidArguments(self._describe_arguments("too many arguments."))
        named = dict(zip(names, args, strict=False))
        if repeated := named.keys() & kwargs.keys():
            fault = f"two values for {', '.join(sorted(repeated))}."
            raise InvalidArguments(self._describe_arguments(fault))
        return {**named, **kwargs}

    def check_arguments(
        self, payload: Mapping[str, Any], args: Sequence[Any] = ()
    ) -> None:
        """Raise InvalidArguments if the arguments do not fit the signature."""
        shape = (len(args), *payload)
        if self.is_class or shape in self._shapes:
            return
        first = (None,) if self.takes_context else ()
        try:
            self.signature.bind(*first, *args, **payload)
        except TypeError as error:
            raise InvalidArguments(self._describe_misfit(error, payload)) from None
        if len(self._shapes) < MAX_SHAPES:
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
        """Return what happens on failure: the job's own options first, then the
        handler's, then the settings."""
        default = exponential(options.backoff_base, options.backoff_cap)
        chosen: Backoff | BackoffCallable = backoff or self.backoff or default
        return RetryPolicy(
            max_attempts=max_attempts or self.max_attempts or options.max_attempts,
            backoff=chosen,
            retry_on=self.retry_on,
            discard_on=self.discard_on,
        )

    def _describe_misfit(self, error: TypeError, payload: Mapping[str, Any]) -> str:
        first = next(iter(self.signature.parameters), None)
        if first in {"context", "self"} and not self.takes_context:
            return self._describe_arguments(
                f"{error}. To get a JobContext as the first argument, write "
                f"@job(takes_context=True) and name it 'context'."
            )
        return self._describe_arguments(
            describe_misfit(
                error, self._own_signature(), payload, options=self.using_options
            )
        )

    def _describe_arguments(self, fault: str) -> str:
        return (
            f"{self.name} takes {self._own_signature()}: {fault} The keys of the "
            f"payload are the handler's keyword arguments."
        )

    def _own_signature(self) -> inspect.Signature:
        """Return the signature as a caller of enqueue() sees it."""
        parameters = list(self.signature.parameters.values())
        return self.signature.replace(
            parameters=parameters[1:] if self.takes_context else parameters,
            return_annotation=inspect.Signature.empty,
        )

    def _check_signature(self) -> None:
        first = next(iter(self.signature.parameters), None)
        if self.takes_context and not self.is_class and first != "context":
            raise HandlerError(
                f"The handler {self.name!r} has takes_context=True, so its first "
                f"argument must be named 'context'; it is {first!r}."
            )
        self._check_parameter_kinds()
        if self.is_async and (self.atomic or self.databases):
            raise HandlerError(
                f"The handler {self.name!r} is async, and Django has no async "
                f"transactions: atomic=True and databases=… need a plain function."
            )

    def _check_parameter_kinds(self) -> None:
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
    """A handler with takes_context=True: a direct call passes the context itself."""

    def __call__(  # type: ignore[override]
        self, context: JobContext, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return cast(R, self.function(context, *args, **kwargs))


class BaseHandler:
    """The base of class handlers: define `execute(self, params)`, sync or async.

    Each attempt gets a new instance; `self.context` is its JobContext.
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
    if _is_method(function):
        raise HandlerError(
            f"@job goes on a function, and {function.__qualname__} is a method: a "
            f"worker has no instance to call it on. Move it out of the class, or "
            f"write a subclass of BaseHandler with @handler('name')."
        )
    if name is None and function.__name__ == "<lambda>":
        raise HandlerError(
            f"A job is found by its name, and the lambda in {function.__module__} has "
            f"none. Write a function with def and @job, in the `jobs` module of an app."
        )
    if name is None:
        name = f"{find_app_label(function.__module__)}.{function.__name__}"
    kind = ContextHandler if options.get("takes_context") else Handler
    made = kind(function, name=name, **_check_options(name, options))
    register(made)
    return made


def _is_method(function: Callable[..., Any]) -> bool:
    """Say whether a function is declared in the body of a class and takes self."""
    parent = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not parent or parent.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), None) == "self"


def _check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(Handler.__init__).parameters
    known = [each for each in parameters if each not in {"self", "target", "name"}]
    for option in options:
        if option not in known:
            hint = _suggest_place(option) or suggest_option(option, known)
            raise HandlerError(f"The handler {name!r} has no option {option!r}. {hint}")
    return options


def _suggest_place(option: str) -> str:
    """Say where to write something that exists, but is no option of a handler."""
    if option == "name":
        return "The name is the first argument: @job('app.name')."
    if option in JOB_OPTIONS:
        return f"It belongs to one job: .using({option}=…).enqueue(…)."
    return ""


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
