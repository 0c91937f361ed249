"""How kernels are compiled: by Numba, without Python's lock, and cached for the next process.

A kernel is a plain function of arrays and numbers. Called, it is compiled first, which takes seconds once, and suits
whole batches. A round that is played by itself does not wait: `kernel.now(...)` runs the function as it stands, in
Python, with the same bits, and when that has taken a while has it compiled in a thread; from then on `now` is compiled.

The cache only saves time. Where no folder for it can be written, or what is in it is damaged, kernels are compiled
without it.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

_PATIENCE = 0.2
"""Seconds that a kernel runs in Python before it is compiled in a thread: scripts of a few rounds never compile."""

_FEW = 8  # rows
_SWITCH = 1e-4
"""Seconds after which the compiler gets Python's lock back. It lets go whenever it calls LLVM or reads a file, which
it does so often that with the usual 5 ms a busy stream would hold it up for minutes."""

_THREAD = "treecal-compiler"

_DAMAGED = "Numba's cache of compiled code is damaged: it is written anew."
_NOWHERE = (
    "Numba's cache of compiled code cannot be written: compiling takes seconds in every process. "
    "Set NUMBA_CACHE_DIR to a folder that only you can write to."
)


class Kernel(Generic[P, R]):
    """A plain function that is compiled when a batch needs it, and that single rounds need not wait for.

    Examples
    --------
    >>> @strict
    ... def half(x: float) -> float:
    ...     return x / 2
    >>> half.now(3.0), half(3.0)
    (1.5, 1.5)
    """

    def __init__(self, function: Callable[P, R], **options: Any) -> None:
        self.function = function
        self._options = options
        self._ready: set[tuple[type, ...]] = set()  # types of arguments for which there is compiled code
        self.seconds = 0.0  # in Python
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it compiled, after compiling it if need be."""
        result: R = self.dispatcher(*args, **kwargs)
        self._ready.add(tuple(map(type, args)))
        return result

    def now(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it without waiting for a compiler."""
        if tuple(map(type, args)) in self._ready:
            return cast(R, self.dispatcher(*args, **kwargs))
        began = time.perf_counter()
        with np.errstate(all="ignore"):  # as compiled code does
            result = self.plain(*args, **kwargs)
        self.seconds += time.perf_counter() - began
        if self.seconds > _PATIENCE:
            _compiler.add(self, args)
        return result

    def for_rows(self, count: int) -> Callable[P, R]:
        """Return how to run it for so many rows: compiled, but for a few, which do not wait."""
        return self.now if count <= _FEW else self

    @cached_property
    def plain(self) -> Callable[P, R]:
        """The function, in which other kernels are plain functions, too."""
        return _bound(self.function, lambda kernel: kernel.plain)

    @cached_property
    def dispatcher(self) -> Any:
        """The function as Numba compiles it."""
        bound = _bound(self.function, lambda kernel: kernel.dispatcher)
        dispatcher = _numba().njit(**self._options)(bound)
        return dispatcher if "inline" in self._options else _cached(dispatcher, self.files)

    @cached_property
    def files(self) -> frozenset[str]:
        """The files that its code is in, and that of all of ours that it names: kernels, tuples, vectors."""
        given = cast(FunctionType, self.function)
        named = [given.__globals__.get(name) for name in _names(given.__code__)]
        own = frozenset({given.__code__.co_filename, *filter(None, map(_file_of, named))})
        return own.union(*(kernel.files for kernel in map(_kernel, named) if kernel is not None))

    def prepare(self, args: tuple[Any, ...]) -> None:
        """Compile it for arguments like these, or load what an earlier process compiled."""
        self.dispatcher.compile(tuple(map(_numba().typeof, args)))
        self._ready.add(tuple(map(type, args)))

    def __reduce__(self) -> str:
        return self.__qualname__


def strict(function: Callable[P, R]) -> Kernel[P, R]:
    """Compile with every sum and division as written, so that points are those of `Path`."""
    return Kernel(function, nogil=True, error_model="numpy")


def loose(function: Callable[P, R]) -> Kernel[P, R]:
    """Compile with permission to reorder sums: for norms."""
    return Kernel(function, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})


def inlined(function: Callable[P, R]) -> Kernel[P, R]:
    """Compile into the caller: passing arrays counts references, which costs more than a short function."""
    return Kernel(function, inline="always")


@strict
def copy_into(room: NDArray[Any], numbers: NDArray[Any]) -> None:
    """Write an array into another of its shape. For a slice, Numba compiles for seconds what an error would say."""
    for at, number in np.ndenumerate(numbers):
        room[at] = number


def also_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function as it is, for Python; kernels that name it compile it."""
    vars(function)["kernel"] = strict(function)
    return function


def unlocked(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that kernels only read as one that is not locked: for a locked one they are compiled again."""
    return array if array.flags.writeable else np.asarray(_Unlocked(array))


class _Unlocked:
    """A locked array's memory, as NumPy asks for it."""

    def __init__(self, locked: NDArray[Any]) -> None:
        interface = locked.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._locked = locked  # so that its memory stays


def _bound(function: Callable[P, R], form: Callable[[Kernel[..., Any]], Any]) -> Callable[P, R]:
    """Return a function in which each kernel that it names is replaced by one of its forms."""
    given = cast(FunctionType, function)
    known = given.__globals__
    found = {name: form(kernel) for name in _names(given.__code__) if (kernel := _kernel(known.get(name))) is not None}
    copy = FunctionType(given.__code__, {**known, **found}, given.__name__, given.__defaults__, given.__closure__)
    copy.__qualname__ = given.__qualname__
    copy.__module__ = given.__module__
    return cast("Callable[P, R]", copy)


def _viewed(arguments: Any) -> Any:
    """Return arguments whose types stay what they are now: an array that is handed on may become read-only."""
    if isinstance(arguments, np.ndarray):
        return arguments[...]
    if not isinstance(arguments, tuple):
        return arguments
    parts = tuple(map(_viewed, arguments))
    return type(arguments)(*parts) if hasattr(arguments, "_fields") else parts


def _names(code: CodeType) -> set[str]:
    """Return the names that a function asks for, those of functions inside it too."""
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _file_of(value: Any) -> str | None:
    """Return the file of our own that something comes from, if it is one."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(home, str) or home.partition(".")[0] != "treecal":
        return None
    return sys.modules[home].__file__


def _kernel(value: Any) -> Kernel[..., Any] | None:
    if isinstance(value, FunctionType):
        value = vars(value).get("kernel")
    return value if isinstance(value, Kernel) else None


class _Compiler:
    """The thread in which kernels are compiled that nobody waits for. It ends when there is none left.

    Between two passes of the compiler it gives up if the process ends or forks: neither waits for a whole kernel.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Kernel[..., Any], tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._forking = False

    def add(self, kernel: Kernel[..., Any], args: tuple[Any, ...]) -> None:
        """Have a kernel compiled for arguments like these, unless that is under way."""
        with self._lock:
            if self._forking or any(each is kernel for each, _ in self._waiting):
                return
            self._waiting.append((kernel, _viewed(args)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=_THREAD)
                try:
                    self._thread.start()
                except RuntimeError:  # where there are no threads, as in a browser, kernels stay plain
                    self._thread = None

    def _run(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, _SWITCH))
        try:
            self._compile()
        finally:
            sys.setswitchinterval(interval)

    def _compile(self) -> None:
        from numba.core import event

        listener = _giving_up(self._given_up, threading.get_ident())
        event.register("numba:run_pass", listener)
        try:
            while not self._given_up() and (first := self._first()):
                kernel, args = first
                try:
                    kernel.prepare(args)
                except Exception as error:  # a batch will raise it
                    _log(f"{kernel.__name__} cannot be compiled, and stays slow: {error}")
                    kernel.seconds = -math.inf
                with self._lock:
                    self._waiting.popleft()
        except _GivenUp:
            pass
        finally:
            event.unregister("numba:run_pass", listener)
            with self._lock:
                self._waiting.clear()
                self._thread = None

    def _first(self) -> tuple[Kernel[..., Any], tuple[Any, ...]] | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _given_up(self) -> bool:
        return self._forking or not threading.main_thread().is_alive()

    def before_fork(self) -> None:
        """Wait until no thread of ours holds a lock that the child would find taken for ever."""
        self._forking = True
        if (thread := self._thread) is not None and thread is not threading.current_thread():
            thread.join()

    def after_fork(self) -> None:
        """Compile again, when asked to."""
        self._forking = False


class _GivenUp(BaseException):
    """The process ends, or forks: what is half compiled is left."""


def _giving_up(given_up: Callable[[], bool], thread: int) -> Any:
    """Return what the compiler tells of its passes, and what then ends those of one thread."""
    from numba.core.event import Listener

    class GivingUp(Listener):
        def on_start(self, event: Any) -> None:
            if threading.get_ident() == thread and given_up():
                raise _GivenUp

        def on_end(self, event: Any) -> None:
            pass

    return GivingUp()


def _log_compiling() -> None:
    _log("treecal is compiling (first use after installation); this takes a few seconds.")


tell: Callable[[], None] | None = _log_compiling
"""Called once, when somebody has waited for the compiler for some seconds; to be set before any kernel runs."""
_TOLD_AFTER = 2.0


def _telling(tell: Callable[[], None]) -> Any:
    """Return what the compiler tells of its work, and what then calls `tell`, unless nobody waits for it."""
    from numba.core.event import Listener

    class Telling(Listener):
        def __init__(self) -> None:
            self._depth = 0
            self._spent = 0.0
            self._began = 0.0
            self._timer: threading.Timer | None = None
            self._lock = threading.Lock()

        def on_start(self, event: Any) -> None:
            if threading.current_thread().name == _THREAD:
                return
            with self._lock:
                self._depth += 1
                if self._depth == 1 and self._spent < _TOLD_AFTER:
                    self._began = time.perf_counter()
                    self._timer = threading.Timer(_TOLD_AFTER - self._spent, self._tell)
                    self._timer.daemon = True
                    self._timer.start()

        def on_end(self, event: Any) -> None:
            if threading.current_thread().name == _THREAD:
                return
            with self._lock:
                self._depth -= 1
                if self._depth == 0 and self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                    self._spent += time.perf_counter() - self._began

        def _tell(self) -> None:
            self._spent = math.inf
            tell()

    return Telling()


_compiler = _Compiler()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compiler.before_fork, after_in_parent=_compiler.after_fork, after_in_child=_compiler.after_fork
    )


@lru_cache
def _numba() -> Any:
    """Return Numba, imported when first needed, which knows kernels by what they compile to."""
    import numba
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def _(kernel: Kernel[..., Any], context: Any) -> Any:
        return typeof_impl(kernel.dispatcher, context)

    if tell is not None:
        from numba.core import event

        event.register("numba:compile", _telling(tell))
    return numba


@lru_cache
def _log(problem: str) -> None:
    """Log a problem, once in a process."""
    logging.getLogger("treecal").warning(problem)


@lru_cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _cached(dispatcher: Any, files: frozenset[str]) -> Any:
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    class Cache(FunctionCache):
        """Numba's cache of one function, for the code of all files that it is made of, where Numba asks for one file.

        What cannot be read counts as absent; what cannot be written is not kept.
        """

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            stamp = tuple(map(_digest, sorted(files)))
            self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, stamp)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # damaged pickles raise anything
                _log(_DAMAGED)
                try:
                    self.flush()  # an empty index, which is filled again
                except OSError:
                    self.disable()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except Exception:  # the disk is full, or the folder has become read-only
                _log(_NOWHERE)
                self.disable()

    try:
        dispatcher._cache = Cache(dispatcher.py_func)
    except (RuntimeError, OSError):  # neither the package's folder nor the home can be written
        _log(_NOWHERE)
    return dispatcher
