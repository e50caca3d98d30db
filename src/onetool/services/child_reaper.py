"""ChildReaper: kills child processes when this process has died without ending them.

A shell waits for the end of a pipe that only this process holds open, and then kills the children that are left. It
knows each by its pid and start time, since pids are used again, and kills the whole group of a group leader. Without
/proc the shell asks `ps`. Windows has neither: there a child's own limits have to do.
"""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from weakref import finalize

SHELL = "/bin/sh"
SCRIPT = """
begun() { ps -o lstart= -p "$1" | tr " " _; }
known=
while read -r pid start; do
  [ "$start" = ? ] && start=$(begun "$pid")
  known="$known $pid=$start"
done
for process in $known; do
  pid=${process%%=*}
  if { read -r stat < "$1/$pid/stat"; } 2> /dev/null; then
    start=${stat##*) }
    group=$(echo "$start" | cut -d " " -f 3)
    start=$(echo "$start" | cut -d " " -f 20)
  else
    group=$(ps -o pgid= -p "$pid" | tr -d " ")
    start=$(begun "$pid")
  fi
  [ -n "$start" ] && [ "$start" = "${process#*=}" ] || continue
  [ "$group" = "$pid" ] && kill -9 "-$pid"
  kill -9 "$pid"
done
"""
PROC = "/proc"
STARTED = 19  # which of the words behind the name in /proc/PID/stat says when it was started
UNKNOWN = "?"  # when it was started: the shell has to ask


class ChildReaper:
    """Registers child processes with `add(pid)`. The shell starts with the first one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: set[int] = set()
        self._pipe: int | None = None
        self._end: finalize[..., ChildReaper] | None = None

    def add(self, pid: int | None) -> None:
        if pid is None:
            return
        # No shell, or no way to start one: nothing that anybody needs.
        with self._lock, suppress(OSError, AttributeError):
            start = None if pid in self._known else _start_of(pid)
            if start is None:
                return
            if self._pipe is None:
                self._pipe, shell = _started()
                self._end = finalize(self, _end, self._pipe, shell)
                self._end.atexit = False  # then it ends by itself, and exiting does not wait for it
            os.write(self._pipe, f"{pid} {start}\n".encode())
            self._known.add(pid)

    def forget(self, pid: int) -> None:
        """Unregister a child that has ended: its pid may be used again."""
        with self._lock:
            self._known.discard(pid)

    def close(self) -> None:
        with self._lock:
            if self._end is not None:
                self._end()
            self._pipe = self._end = None
            self._known.clear()


def _start_of(pid: int) -> str | None:
    """Return when a process was started, in whatever unit. None where it has ended already."""
    if not Path(PROC, "self").exists():
        return UNKNOWN
    try:
        return Path(PROC, str(pid), "stat").read_text().rpartition(")")[2].split()[STARTED]
    except FileNotFoundError:
        return None


def _started() -> tuple[int, int]:
    """Start the shell in a process group of its own: Ctrl-C is not meant for it. Return our end of the pipe, and the
    shell.
    """
    theirs, ours = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        return ours, os.posix_spawn(
            SHELL, [SHELL, "-c", SCRIPT, SHELL, PROC], {"PATH": os.defpath}, file_actions=actions, setpgroup=0
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)


def _end(pipe: int, shell: int) -> None:
    os.close(pipe)
    with suppress(ChildProcessError):
        os.waitpid(shell, 0)
