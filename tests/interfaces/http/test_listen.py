"""The end of a socket that many connect to: nobody who has connected is cut off."""

import socket
import sys
from threading import Thread
from time import sleep

import pytest
from helpers import until

from onetool.interfaces.http.listen import refuse_new
from onetool.interfaces.http.server import HANDSHAKE_S


class Clients:
    """They connect and ask, again and again, until nobody listens."""

    def __init__(self, port, count=4):
        self.answers, self.failures, self._port = 0, [], port
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        while not self.failures:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 20) as made:
                    made.sendall(b"?")
                    assert made.recv(1) == b"!"
                self.answers += 1
            except ConnectionRefusedError:
                return
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))

    def ended(self):
        for thread in self._threads:
            thread.join(20)
        return not any(thread.is_alive() for thread in self._threads)


def answer(client):
    with client:
        client.settimeout(20)
        client.recv(1)
        client.sendall(b"!")


def take(listening, taken):
    """Those who wait in the system's queue."""
    try:
        while True:
            taken.append(Thread(target=answer, args=(listening.accept()[0],), daemon=True))
            taken[-1].start()
    except BlockingIOError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
def test_whoever_has_connected_is_answered():
    listening, taken = socket.create_server(("127.0.0.1", 0), backlog=128), []
    listening.setblocking(False)
    clients = Clients(listening.getsockname()[1])
    until(lambda: take(listening, taken) and clients.answers > 20)
    refuse_new(listening)
    sleep(HANDSHAKE_S)
    take(listening, taken)
    sleep(HANDSHAKE_S)  # a process that has to wait for a core: whoever connected now would be cut off
    listening.close()
    assert clients.ended()
    assert clients.failures == []
