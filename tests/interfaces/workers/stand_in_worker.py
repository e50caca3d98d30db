"""Looks like a worker to its supervisor, and does as the test says: `stand_in_worker.py FOLDER MODE DESCRIPTOR`.

FOLDER/told has a line for each thing that it was told. `ends`: it ends when it has served; `stays`: it ends with the
first signal to stop; `stubborn`: with the second one; `refuses`: it can't reload. SIGUSR1: somebody reloads it.
"""

import json
import os
import signal
import socket
import sys


class Worker:
    def __init__(self, folder, mode, descriptor):
        self.folder, self.mode = folder, mode
        self.channel = socket.socket(fileno=int(descriptor))
        self.number = json.loads(self.channel.makefile("rb").readline())["number"]
        self.stops = 0
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        signal.signal(signal.SIGHUP, self.reload)
        signal.signal(signal.SIGUSR1, self.reloaded)

    def run(self):
        self.note(f"serves {os.getpid()}")
        self.tell(type="serving", greeting="hello")
        if self.mode == "ends":
            sys.exit(3)
        while self.channel.recv(1):  # until the supervisor is gone
            pass

    def note(self, what):
        with open(f"{self.folder}/told", "a") as file:
            file.write(f"{self.number} {what}\n")

    def tell(self, **report):
        self.channel.sendall(json.dumps(report).encode() + b"\n")

    def stop(self, *_):
        self.stops += 1
        self.note("stop")
        if self.mode != "stubborn" or self.stops == 2:
            os._exit(0)

    def reload(self, *_):
        self.note("reload")
        self.tell(type="reloaded", is_new=self.mode != "refuses", was_asked=True)

    def reloaded(self, *_):
        self.note("was reloaded")
        self.tell(type="reloaded", is_new=True, was_asked=False)


if __name__ == "__main__":
    Worker(*sys.argv[1:]).run()
