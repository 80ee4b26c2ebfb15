"""Builds the blocking form of the asyncio API's functions and objects, with their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast, overload

from committer.advice import tell_blocking_caller
from committer.flow.misuse import OneProcess
from committer.flow.portal import free_at_exit, is_ending, wait_for

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def without_await(text: str) -> str:
    """Rewrites a docstring or annotation of the asyncio API for the blocking API."""
    text = re.sub(r"\b(async (?=with|for)|await\s+|Async(?=Iterator))", "", text)
    return re.sub(r"\bcommitter\.(?=\w+\()", "committer.sync.", re.sub(r"\bOpening\[(\w+)\]", r"\1", text))


def like(function: Callable[P, object]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Gives a blocking function the name, signature and docstring of the asyncio API's."""
    signature = inspect.signature(function)

    def named(call: Callable[P, T]) -> Callable[P, T]:
        wraps(function)(call)
        # Pickle finds it here.
        call.__module__ = "committer.sync"
        call.__doc__ = without_await(function.__doc__ or "")
        returned = without_await(signature.return_annotation)
        cast("Any", call).__signature__ = signature.replace(return_annotation=returned)
        call.__annotations__ = {**function.__annotations__, "return": returned}
        # It would lead `inspect.unwrap` to the coroutine function.
        del cast("Any", call).__wrapped__
        return call

    return named


class Blocking(OneProcess):
    """Base class of objects whose calls run on the portal's loop, on the asyncio object that they hold.

    `_undo` ends the object after an interrupt before the caller had it; `_free` frees it at interpreter exit.
    """

    _engine: Any

    def __init__(self, engine: object) -> None:
        super().__init__()
        self._engine = engine
        # A call that awaits nothing is one step on a loop, but not among threads.
        self._lock = threading.Lock()
        free_at_exit(self)

    def __repr__(self) -> str:
        return repr(self._engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited or (error is not None and is_ending()):
            return
        try:
            wait_for(lambda: self._engine.__aexit__(kind, error, trace), f"{type(self).__name__}.__exit__")
        finally:
            tell_blocking_caller(error)

    def _told_as(self) -> str:
        return str(self._engine._told_as())

    def _call(self, function: Callable[..., T], *args: object, **keywords: object) -> T:
        with self._lock:
            return function(self._engine, *args, **keywords)

    async def _undo(self, interrupt: BaseException) -> None:
        raise NotImplementedError

    async def _free(self) -> None:
        raise NotImplementedError


@overload
def blocking(function: Callable[P, Awaitable[R]]) -> Callable[P, R]: ...
@overload
def blocking(function: Callable[P, Awaitable[R]], made: Callable[[R], T]) -> Callable[P, T]: ...
def blocking(function: Callable[..., Any], made: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Builds the blocking form of a coroutine function; `made` converts its result on the loop, as to a class."""

    @like(function)
    def call(*args: Any, **keywords: Any) -> Any:
        return _wait(function.__qualname__, function, args, keywords, made)

    return call


@overload
def blocking_method(function: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]: ...
@overload
def blocking_method(
    function: Callable[Concatenate[Any, P], Awaitable[R]], made: Callable[[R], T]
) -> Callable[Concatenate[Any, P], T]: ...
def blocking_method(function: Callable[..., Any], made: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Builds the blocking form of a method, for a `Blocking` object."""

    @like(function)
    def call(self: Blocking, /, *args: Any, **keywords: Any) -> Any:
        self._check_process(function.__qualname__)
        # Only what opens something is a step that the lock must keep apart. A commit or an abort in a signal handler
        # must not wait for the call that the signal interrupted.
        begin = partial(function, self._engine) if made is None else partial(self._call, function)
        return _wait(function.__qualname__, begin, args, keywords, made)

    return call


def direct_method(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Builds the form of a method that awaits nothing: it runs on the caller's thread."""

    @like(function)
    def call(self: Blocking, /, *args: Any, **keywords: Any) -> R:
        self._check_process(function.__qualname__)
        return self._call(function, *args, **keywords)

    return call


def _wait(
    name: str,
    function: Callable[..., Awaitable[Any]],
    args: Sequence[object],
    keywords: Mapping[str, object],
    made: Callable[[Any], Any] | None,
) -> Any:
    begin = partial(function, *map(_drawn, args), **{key: _drawn(value) for key, value in keywords.items()})

    async def run() -> Any:
        result = await begin()
        return result if made is None else made(result)

    return wait_for(run, name, undo=getattr(made, "_undo", None))


def _drawn(value: object) -> object:
    """Reads an iterable on the caller's thread: it may block, or call this module."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | Sequence):
        return value
    return list(value)
