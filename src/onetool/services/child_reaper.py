"""ChildReaper: kills child processes when this process dies without ending them.

A shell waits for the end of a pipe that only this process holds open, and then kills the remaining children. The shell
identifies each by pid and start time, since pids are reused, and kills the whole group of a group leader. Without
/proc, the shell asks `ps`.
"""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from weakref import finalize

SHELL = "/bin/sh"
SCRIPT = """
started_at() { ps -o lstart= -p "$1" | tr " " _; }
known=
while read -r pid start; do
  [ "$start" = ? ] && start=$(started_at "$pid")
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
    start=$(started_at "$pid")
  fi
  [ -n "$start" ] && [ "$start" = "${process#*=}" ] || continue
  [ "$group" = "$pid" ] && kill -9 "-$pid"
  kill -9 "$pid"
done
"""
PROC = "/proc"
START_TIME = 19  # index of the start time among the words after the name in /proc/PID/stat
UNKNOWN = "?"  # start time: the shell asks `ps`


class ChildReaper:
    """A registry of child processes. The shell starts with the first call of `add`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: set[int] = set()
        self._pipe: int | None = None
        self._end: finalize[..., ChildReaper] | None = None

    def add(self, pid: int | None) -> None:
        if pid is None:
            return
        # Without a shell, children are just not registered.
        with self._lock, suppress(OSError):
            start = None if pid in self._known else _start_time_of(pid)
            if start is None:
                return
            if self._pipe is None:
                self._pipe, shell = _start_shell()
                self._end = finalize(self, _end, self._pipe, shell)
                self._end.atexit = False  # the shell ends by itself at exit, without a wait
            os.write(self._pipe, f"{pid} {start}\n".encode())
            self._known.add(pid)

    def forget(self, pid: int) -> None:
        """Unregister a child that has ended: its pid may be reused."""
        with self._lock:
            self._known.discard(pid)

    def close(self) -> None:
        with self._lock:
            if self._end is not None:
                self._end()
            self._pipe = self._end = None
            self._known.clear()


def _start_time_of(pid: int) -> str | None:
    """Return the start time of a process, in a system-specific unit. None if the process has ended."""
    if not Path(PROC, "self").exists():
        return UNKNOWN
    try:
        return Path(PROC, str(pid), "stat").read_text().rpartition(")")[2].split()[START_TIME]
    except FileNotFoundError:
        return None


def _start_shell() -> tuple[int, int]:
    """Start the shell, in its own process group to protect it from Ctrl-C. Return our end of the pipe, and its pid."""
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
