"""A program that runs a command through the fork server of `warm.py`: `python -I -S warm_client.py SOCKET ARGUMENT…`.

MCP clients start `onetool mcp` themselves. This program starts fast, passes its pipes, folder and environment to a
command forked by the fork server, forwards signals to it, and exits with its status.
"""

import array
import json
import os
import signal
import socket
import sys


def main(path: str, args: list[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(path)
        request_file = os.memfd_create("request")
        request = {"args": args, "cwd": os.getcwd(), "env": dict(os.environ)}
        os.write(request_file, json.dumps({**request, "terminal": False, "script": None, "new_session": True}).encode())
        files = array.array("i", [0, 1, 2, request_file])
        server.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        with server.makefile("r") as status:
            pid = int(status.readline())
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, _: os.kill(pid, number))
            for file in (0, 1):
                os.close(file)
            code = os.waitstatus_to_exitcode(int(status.readline() or 9))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


main(sys.argv[1], sys.argv[2:])
