"""`RateLimiter` counts the calls of each limited tool over the last minute, together with all processes of the machine.

Each limited tool has a small file in the state folder of the bundles, which is read and written under its lock. It is
named after the place of the tool, so that a tool that was deleted and put again goes on counting. A file that can't be
read counts as empty. Where there is no folder, or it can't be written, each process counts for itself.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from onetool.core import flock
from onetool.core.context import note_call
from onetool.core.errors import ToolFailure
from onetool.core.os_files import private

if TYPE_CHECKING:
    from onetool.database.shared_rates import SharedWindows, WindowCount

WINDOW = 60.0  # seconds
# Calls a minute up to which each of them is remembered; above that they are counted in slices of the window.
EXACT_UP_TO = 1_000
MANY_TOOLS = 1_000  # tools, after which those that nobody calls are looked for
LARGEST_FILE = 512 * 1024  # bytes; ours are smaller
PATIENCE = (
    0.25  # seconds to wait for the lock of a file: its holder needs less than a millisecond, unless it is stopped
)
ALONE_SECONDS = 5.0  # that a process counts for itself, after the files could not be used
NOTE = "rate_limit"  # in the meta of a result

log = logging.getLogger("onetool.bundles")


class RateLeft(NamedTuple):
    """What is left of a limit: so many calls, until there are more in so many seconds."""

    limit: int
    remaining: int
    reset_s: float

    def shown(self) -> dict[str, int]:
        return {"limit": self.limit, "remaining": self.remaining, "reset_s": max(1, math.ceil(self.reset_s))}


_Outcome = tuple[RateLeft, bool]  # what is left, and whether the call was counted
_Slice = tuple[float, int, float]  # when its last call was, how many they are, when its first call was
_slices = msgspec.json.Decoder(list[_Slice])


class _CallLog:
    """The calls of one tool in slices, the oldest first."""

    __slots__ = ("is_changed", "slices", "total")

    def __init__(self, slices: list[_Slice] | None = None) -> None:
        self.slices = slices or []
        self.total = sum(number for _, number, _ in self.slices)
        self.is_changed = False

    def forget_old(self, now: float) -> None:
        gone = 0
        while gone < len(self.slices) and self.slices[gone][0] <= now - WINDOW:
            self.total -= self.slices[gone][1]
            gone += 1
        del self.slices[:gone]
        if self.slices and self.slices[-1][0] > now:  # the clock was set back: what was counted was before now
            self.slices = [(min(last, now), number, min(first, now)) for last, number, first in self.slices]
            self.is_changed = True

    def add(self, now: float, per_minute: int) -> None:
        """A slice is as young as its last call: no more than allowed ever happens, at most a little less."""
        width = WINDOW / EXACT_UP_TO if per_minute > EXACT_UP_TO else 0.0
        if self.slices and now - self.slices[-1][2] < width:
            _, number, first = self.slices[-1]
            self.slices[-1] = (now, number + 1, first)
        else:
            self.slices.append((now, 1, now))
        self.total += 1
        self.is_changed = True

    def left(self, per_minute: int, now: float) -> RateLeft:
        over = self.total - per_minute
        reset = 0.0
        for last, number, _ in self.slices:  # the limit may have been lowered: then more than one slice has to go
            reset = last + WINDOW - now
            over -= number
            if over < 0:
                break
        return RateLeft(per_minute, max(0, per_minute - self.total), reset)


class RateLimiter:
    """Limits calls per minute, per tool. `folder` gives the folder of the files, or OSError; None: there is none."""

    def __init__(
        self,
        folder: Callable[[], Path] | None = None,
        clock: Callable[[], float] = time.time,
        shared: "Callable[[], SharedWindows | None]" = lambda: None,
    ) -> None:
        """`shared` gives what all replicas count in; None: the processes of this machine alone."""
        self._windows = shared
        self._folder = folder
        self._clock = clock
        self._lock = Lock()
        self._logs: dict[str, _CallLog] = {}  # of this process alone
        self._look_at = MANY_TOOLS
        self._alone_until = 0.0
        self._has_warned = False

    def take(self, tool: str, per_minute: int) -> None:
        """Count a call, and note in its meta what is left. ToolFailure, with reason rate_limited, if nothing is.

        It may wait for another process: on an event loop use `take_async`.
        """
        if (windows := self._windows()) is not None:
            _admit(*_outcome(windows.take(f"calls of {tool}", per_minute, WINDOW), per_minute), per_minute)
            return
        _admit(*self._counted(tool, per_minute, takes=True), per_minute)

    async def take_async(self, tool: str, per_minute: int) -> None:
        """The same on an event loop: only if others hold the file, a thread waits for it."""
        if (windows := self._windows()) is not None:
            found = await windows.take_async(f"calls of {tool}", per_minute, WINDOW)
            _admit(*_outcome(found, per_minute), per_minute)
            return
        counted = self._counted_at_once(tool, per_minute)
        if counted is None:
            counted = await asyncio.to_thread(self._counted, tool, per_minute, takes=True)
        _admit(*counted, per_minute)

    def left(self, tool: str, per_minute: int) -> RateLeft:
        """What is left, without counting a call."""
        if (windows := self._windows()) is not None:
            return _outcome(windows.take(f"calls of {tool}", per_minute, WINDOW, counts=False), per_minute)[0]
        return self._counted(tool, per_minute, takes=False)[0]

    def _counted(self, tool: str, per_minute: int, takes: bool) -> _Outcome:
        with self._lock:
            try:
                outcome = self._shared(tool, per_minute, takes, PATIENCE)
            except OSError as error:
                self._count_alone(error)
                outcome = None
            return outcome or self._own(tool, per_minute, takes)

    def _counted_at_once(self, tool: str, per_minute: int) -> _Outcome | None:
        """Count a call without waiting. None if others hold the file, or it can't be used: `_counted` sees to that."""
        if not self._lock.acquire(blocking=False):  # a thread may hold it while it waits for the file
            return None
        try:
            return self._shared(tool, per_minute, takes=True, patience=0.0) or self._own(tool, per_minute, takes=True)
        except OSError:
            return None
        finally:
            self._lock.release()

    def _own(self, tool: str, per_minute: int, takes: bool) -> _Outcome:
        """Count for this process alone."""
        now = self._clock()
        return _step(self._logs.get(tool) or self._new(tool, now), per_minute, now, takes)

    def _shared(self, tool: str, per_minute: int, takes: bool, patience: float) -> _Outcome | None:
        """Count in the file. None if this process counts for itself. Raises OSError, also if others hold the file."""
        if self._folder is None or monotonic() < self._alone_until:
            return None
        folder = self._folder()
        with _opened(folder / f"{sha256(tool.encode()).hexdigest()[:32]}.json", patience) as file:
            return self._in_file(file, folder, per_minute, self._clock(), takes)

    def _in_file(self, file: int, folder: Path, per_minute: int, now: float, takes: bool) -> _Outcome:
        data = os.read(file, LARGEST_FILE)
        calls = _read(data)
        outcome = _step(calls, per_minute, now, takes)
        if calls.is_changed:
            if not data:
                self._look_around(folder)
            # One line: what a longer one has left behind it does not count, should we end between these two.
            line = msgspec.json.encode(calls.slices) + b"\n"
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, line)
            os.ftruncate(file, len(line))
        return outcome

    def _count_alone(self, error: OSError) -> None:
        self._alone_until = monotonic() + ALONE_SECONDS
        if not self._has_warned:
            self._has_warned = True
            log.warning("calls of tools with a limit are counted in this process alone: %s", error)

    def _new(self, tool: str, now: float) -> _CallLog:
        if len(self._logs) >= self._look_at:
            for calls in self._logs.values():
                calls.forget_old(now)
            self._logs = {known: calls for known, calls in self._logs.items() if calls.total}
            self._look_at = max(MANY_TOOLS, 2 * len(self._logs))
        calls = self._logs[tool] = _CallLog()
        return calls

    def _look_around(self, folder: Path) -> None:
        """A new file is about to be written. If there are many, remove those of tools that nobody calls."""
        with os.scandir(folder) as found:
            names = [entry.name for entry in found]
        if len(names) >= self._look_at:
            kept = sum(not _removed(folder / name) for name in names)
            self._look_at = max(MANY_TOOLS, 2 * kept)


def _outcome(found: "WindowCount", per_minute: int) -> _Outcome:
    reset = found.reset_s if found.wait is None else found.wait
    return RateLeft(per_minute, max(0, per_minute - found.used), reset), found.wait is None


def _admit(left: RateLeft, is_taken: bool, per_minute: int) -> None:
    """Note what is left in the meta of the call. ToolFailure if it was one too many."""
    note_call(NOTE, left.shown())
    if not is_taken:
        times = "once" if per_minute == 1 else f"{per_minute:,} times"
        raise ToolFailure(
            f"it may be called {times} a minute (limits.maxCallsPerMinute), and has been",
            reason="rate_limited",
            hints=(f"try again in {math.ceil(left.reset_s)} s",),
        )


def _step(calls: _CallLog, per_minute: int, now: float, takes: bool) -> _Outcome:
    """Count a call if it is allowed: what is left then, and whether it was."""
    calls.forget_old(now)
    is_taken = takes and calls.total < per_minute
    if is_taken:
        calls.add(now, per_minute)
    return calls.left(per_minute, now), is_taken


def _read(data: bytes) -> _CallLog:
    """What a file holds; whatever is wrong with it, it counts as empty."""
    try:
        slices = _slices.decode(data.partition(b"\n")[0])
    except (msgspec.MsgspecError, RecursionError):
        return _CallLog()
    is_ours = all(number > 0 and math.isfinite(last) and math.isfinite(first) for last, number, first in slices)
    return _CallLog(slices if is_ours else None)


@contextmanager
def _opened(path: Path, patience: float) -> Iterator[int]:
    """The file, locked. OSError if it can't be opened, or others hold its lock for so many seconds."""
    file = flock.take_path(path, lambda path: private(path, os.O_RDWR | os.O_CREAT), patience)
    if file is None:
        who = flock.holder(path) if patience else None  # without waiting the holder is not looked up
        raise TimeoutError(f"{who or flock.UNKNOWN} holds {path.name}")
    try:
        yield file
    finally:
        flock.give_back(file)


def _removed(path: Path) -> bool:
    """Remove the file of a tool that nobody has called for a while; not one that somebody is about to write."""
    with suppress(OSError):
        file = private(path, os.O_RDWR)
        try:
            if time.time() - os.fstat(file).st_mtime > 2 * WINDOW and flock.take(file) and flock.leads_to(path, file):
                path.unlink()
                return True
        finally:
            flock.give_back(file)
    return False
