"""A command of the warm process for who can only start programs: `python -I -S warm_client.py SOCKET ARGUMENT…`.

Other people's clients start `onetool mcp` themselves. This starts in a moment, gives its own pipes, folder and
environment to a command that `warm` forks, hands signals on to it, and ends as it does.
"""

import array
import json
import os
import signal
import socket
import sys


def main(place: str, args: list[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as warm:
        warm.connect(place)
        order = os.memfd_create("order")
        wanted = {"args": args, "cwd": os.getcwd(), "env": dict(os.environ)}
        os.write(order, json.dumps({**wanted, "terminal": False, "script": None, "new_session": True}).encode())
        files = array.array("i", [0, 1, 2, order])
        warm.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        with warm.makefile("r") as told:
            pid = int(told.readline())
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, _: os.kill(pid, number))
            for file in (0, 1):
                os.close(file)
            code = os.waitstatus_to_exitcode(int(told.readline() or 9))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


main(sys.argv[1], sys.argv[2:])
