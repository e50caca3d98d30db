"""Runs the command line as `onetool` does, and notes each call of a function of ours, in all threads.

With SIGUSR1 it writes them to CALL_PATH_FILE, a line each: nanoseconds of the monotonic clock, which all processes
share, the thread, the module's file and the function.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import onetool

PACKAGE = str(Path(onetool.__file__).parent)
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # functions in 3.11 only
noted = []


def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
        noted.append((time.monotonic_ns(), threading.get_ident(), frame.f_code))


def write(number, frame):
    lines = []
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for at, thread, code in list(noted):
        if code.co_name not in COMPREHENSIONS:
            file = os.path.relpath(code.co_filename, PACKAGE)
            lines.append(f"{at} {names.get(thread, 'ended')} {file} {code.co_qualname}:{code.co_firstlineno}\n")
    part = Path(os.environ["CALL_PATH_FILE"] + ".part")
    part.write_text("".join(lines))
    part.rename(os.environ["CALL_PATH_FILE"])


signal.signal(signal.SIGUSR1, write)
threading.setprofile(note)
sys.setprofile(note)

from onetool.interfaces.cli import main  # noqa: E402

main()
