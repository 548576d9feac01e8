"""A task: a handler, the queue it belongs to, and what becomes of a job whose handler raises.

The definition is what worker and producer share; it does no I/O. Its name is the function's own unless one is given,
never its module: moving code must not orphan jobs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from penstock.errors import InvalidInput
from penstock.model.checks import (
    DEFAULT_PRIORITY,
    checked_attempts,
    checked_count,
    checked_delay,
    checked_name,
    checked_priority,
    checked_seconds,
    key_to_bytes,
)
from penstock.model.wrong_calls import meant_by
from penstock.policy.backoff import Backoff
from penstock.policy.batch_size import BatchSize
from penstock.task.arguments import Arguments
from penstock.task.batch_arguments import BatchArguments
from penstock.task.middleware import Middleware

__all__ = ["KeyOf", "TaskDefinition", "define", "is_async_function"]

KeyOf = str | Callable[..., Any] | None
Exceptions = type[BaseException] | tuple[type[BaseException], ...]
DEFAULT_ATTEMPTS = 25
MOST_IN_BATCH = 1_000
LONGEST_BATCH_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class TaskDefinition:
    """Everything declared about one task."""

    queue: str
    name: str
    function: Callable[..., Any]
    arguments: Arguments
    key: KeyOf
    max_attempts: int
    timeout: float | None
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...] | None
    discard_on: tuple[type[BaseException], ...]
    priority: int
    is_async: bool
    runs_in_process: bool
    # How many jobs the handler is given together; None: it is called with each alone.
    batch: BatchSize | None = None
    # What its app puts around every run.
    middleware: Middleware = field(default_factory=Middleware)

    def key_of(self, named: dict[str, Any]) -> bytes | None:
        """The ordering key of a job with these arguments."""
        if self.key is None:
            return None
        if isinstance(self.key, str):
            value = named.get(self.key, self.arguments.defaults.get(self.key))
            if value is None:
                raise InvalidInput("key", f"argument {self.key!r}, the key of task {self.name!r}, is missing; pass it")
            return key_to_bytes(value)
        try:
            value = self.key(**{**self.arguments.defaults, **named})
        except Exception as error:  # The user's function may raise anything; the caller must hear which job it was.
            raise InvalidInput(
                "key", f"the key function of task {self.name!r} raised {type(error).__name__}: {error}"
            ) from error
        return None if value is None else key_to_bytes(value)


def define(
    queue: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    key: KeyOf = None,
    max_attempts: int = DEFAULT_ATTEMPTS,
    timeout: float | timedelta | None = None,
    backoff: float | timedelta | Callable[[int], float | timedelta] | None = None,
    retry_on: Exceptions | None = None,
    discard_on: Exceptions | None = None,
    priority: int = DEFAULT_PRIORITY,
    executor: Literal["process"] | None = None,
    batch: int | None = None,
    batch_wait: float | timedelta = 0.0,
) -> TaskDefinition:
    """Check a declaration and make the definition of it."""
    if not callable(function):
        raise InvalidInput("task", f"a function is needed, not {type(function).__name__}")
    name = checked_name("name", name if name is not None else getattr(function, "__name__", None))
    batch_size = _checked_batch(batch, batch_wait)
    arguments = Arguments(function, name) if batch_size is None else BatchArguments(function, name)
    is_async = is_async_function(function)
    if _is_generator_function(function):
        raise InvalidInput(
            "task",
            f"{name!r} is a generator: its body would never run; return a value instead of yielding, "
            "or loop over the generator in the handler",
        )
    if executor not in (None, "process"):
        raise InvalidInput("executor", f"{executor!a:.60} is unknown; leave it out, or give 'process'")
    if executor == "process" and is_async:
        raise InvalidInput(
            "executor", "an async handler runs on the worker's loop; make it a plain function for 'process'"
        )
    is_open = isinstance(arguments, BatchArguments) and arguments.takes_any_name
    if isinstance(key, str) and key not in arguments.names and not is_open:
        raise InvalidInput(
            "key",
            f"the handler has no argument {key!a:.60}{meant_by(key, arguments.names)}; "
            f"it takes: {', '.join(sorted(arguments.names)) or 'none'}",
        )
    if key is not None and not isinstance(key, str) and not callable(key):
        raise InvalidInput(
            "key", f"the name of an argument, or a function of the arguments, is needed, not {type(key).__name__}"
        )
    return TaskDefinition(
        queue=queue,
        name=name,
        function=function,
        arguments=arguments,
        key=key,
        max_attempts=checked_attempts(max_attempts),
        timeout=None if timeout is None else checked_seconds("timeout", timeout),
        backoff=Backoff(backoff),
        retry_on=None if retry_on is None else _exceptions("retry_on", retry_on),
        discard_on=() if discard_on is None else _exceptions("discard_on", discard_on),
        priority=checked_priority(priority),
        is_async=is_async,
        runs_in_process=executor == "process",
        batch=batch_size,
    )


def _checked_batch(batch: object, wait: object) -> BatchSize | None:
    seconds = checked_delay("batch_wait", wait)
    if batch is None:
        if seconds:
            raise InvalidInput(
                "batch_wait", "it is how long a batch waits to be fuller; give batch= too, or leave it out"
            )
        return None
    if seconds > LONGEST_BATCH_WAIT_SECONDS:
        raise InvalidInput(
            "batch_wait", f"{seconds:g} s is too long for a job to wait; give at most {LONGEST_BATCH_WAIT_SECONDS:g} s"
        )
    return BatchSize(checked_count("batch", batch, most=MOST_IN_BATCH), seconds)


def is_async_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it gives a coroutine."""
    call = getattr(function, "func", function)
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _is_generator_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it gives a generator, sync or async, which a worker would not run."""
    call = getattr(function, "func", function)
    inner = getattr(call, "__call__", None)  # noqa: B004
    return any(
        test(each) for test in (inspect.isgeneratorfunction, inspect.isasyncgenfunction) for each in (call, inner)
    )


def _exceptions(field: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(
                field, f"exception types are needed, not {kind!r:.60}; write {field}=(TimeoutError, ...)"
            )
    return kinds
