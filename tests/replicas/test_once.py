"""A balancer sends a call to one replica only, whatever becomes of it: a call may have had its effect."""

import threading

import httpx
from helpers import until


def test_a_call_that_is_lost_is_not_made_again(balanced, tmp_path):
    three, balancer = balanced
    file, said = tmp_path / "calls", []

    def call():
        said.append(httpx.post(f"{balancer.url}/call/probe.note", json={"path": str(file)}, timeout=60).status_code)

    thread = threading.Thread(target=call)
    thread.start()
    pid = int(until(lambda: file.exists() and file.read_text()).split()[0])
    next(one for one in three if one.pid == pid).kill()
    thread.join()
    assert (len(file.read_text().split()), said) == (1, [502])
