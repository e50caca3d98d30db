"""Takes away from Python what Windows has not, as far as the standard library survives that. Loaded at its start.

What asyncio needs on a POSIX system stays: fork, waitpid and set_blocking, by which child processes run.
"""

import asyncio
import importlib.abc
import os
import select
import selectors  # noqa: F401 - looks for `select.poll` when it is imported, and finds it: `subprocess` needs it
import shutil
import signal
import subprocess
import sys
import tempfile  # noqa: F401

HIDDEN = ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "readline", "uvloop", "posix", "syslog", "crypt")
MISSING = {
    os: (
        "O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_NOCTTY O_PATH O_SYNC fchmod fchown chown lchown geteuid getuid "
        "getgid getegid getgroups killpg getpgid setsid pread pwrite preadv posix_spawn mkfifo mknod statvfs fstatvfs "
        "uname major minor sched_getaffinity fdatasync getpgrp ttyname register_at_fork"
    ),
    signal: "SIGHUP SIGKILL SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE setitimer alarm pthread_sigmask",
    select: "poll PIPE_BUF",
}


def looks_at_the_platform():
    """Whether the MCP SDK imports it, which does so where `sys.platform` is not Windows'."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals["__name__"].startswith("mcp.")


class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in HIDDEN and not looks_at_the_platform():
            raise ModuleNotFoundError(f"No module named {name!r}: it is hidden", name=name)


for name in HIDDEN:
    if name != "posix":  # `os` itself is made of it
        sys.modules.pop(name, None)
sys.meta_path.insert(0, Hide())

real_open, real_scandir, real_listdir = os.open, os.scandir, os.listdir


def open_as_windows_does(path, flags, mode=0o777, *, dir_fd=None):
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return real_open(path, flags, mode)


def by_path_alone(function):
    def call(path=".", *args, **options):
        if isinstance(path, int) or any(value is not None for key, value in options.items() if key.endswith("dir_fd")):
            raise NotImplementedError("descriptors of folders are unavailable on this platform")
        return function(path, *args, **options)

    return call


def not_implemented(*_args, **_options):
    raise NotImplementedError


for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
# The standard library looked for these two when it was imported, before they were taken away.
subprocess._USE_POSIX_SPAWN = False
os.process_cpu_count = os.cpu_count
os.open = open_as_windows_does
for name in ("scandir", "listdir", "mkdir", "rmdir", "unlink", "rename", "readlink", "link"):
    setattr(os, name, by_path_alone(getattr(os, name)))
os.supports_dir_fd = set()
os.supports_fd = {os.stat}
shutil._use_fd_functions = False

subprocess.Popen.kill = lambda self: self.send_signal(9)  # the standard library's own, by the name that is gone
asyncio.SelectorEventLoop.add_reader = asyncio.SelectorEventLoop.add_writer = not_implemented
asyncio.SelectorEventLoop.add_signal_handler = not_implemented
