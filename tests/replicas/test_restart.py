"""A replica that is told to stop finishes what is under way, and its peers are served meanwhile."""

import os
import signal

import pytest
from helpers import until

from replicas.test_cut_off import rpc

ANSWER = {"colour": {"action": "accept", "content": {"colour": "green"}}}


def run(url, code):
    """Return the id of the task that the code goes on as."""
    found = rpc(f"{url}/mcp?menu=run", "tools/call", {"name": "run", "arguments": {"code": code}}).json()["result"]
    assert found["resultType"] == "task", found
    return {"taskId": found["taskId"]}


def question(url):
    params = {"name": "probe__wish", "arguments": {}}
    found = rpc(url, "tools/call", params).json()["result"]
    assert found["resultType"] == "input_required", found
    return {**params, "requestState": found["requestState"]}


def told_to_stop(one):
    os.kill(one.pid, signal.SIGTERM)
    until(lambda: not one.is_ready())


@pytest.mark.usefixtures("drains_quickly")
def test_tasks_and_questions_are_finished(replicas):
    one, other = replicas(2)
    task, asked = run(one.url, "probe.slow(seconds=5)\nprobe.slow(seconds=5)"), question(one.url)
    told_to_stop(one)
    working = rpc(other.url, "tasks/get", task).json()["result"]
    assert working["status"] == "working"
    done = until(lambda: (found := rpc(other.url, "tasks/get", task).json()["result"])["status"] != "working" and found)
    assert (done["status"], str(one.pid) in str(done["result"])) == ("completed", True), str(done["result"])
    assert one.process.poll() is None  # the question is open
    answered = rpc(other.url, "tools/call", {**asked, "inputResponses": ANSWER}).json()
    assert answered["result"]["content"][0]["text"] == f"green in {one.pid}"
    assert one.process.wait(30) == 0
    assert rpc(other.url, "tasks/get", task).json()["result"]["result"] == done["result"]


@pytest.mark.usefixtures("drains_quickly")
def test_what_is_left_is_reported_with_how_far_it_got(replicas):
    (one,), (other,) = replicas(1, finish="finish_s: 1"), replicas(1)
    task, asked = run(one.url, "probe.pid()\nprobe.slow(seconds=60)"), question(one.url)
    told_to_stop(one)
    assert one.process.wait(30) == 0
    failed = rpc(other.url, "tasks/get", task).json()["result"]
    assert failed["status"] == "failed", failed
    assert failed["error"]["message"].endswith("calls done: 1, failed: 0, not known: 1"), failed
    refused = rpc(other.url, "tools/call", {**asked, "inputResponses": ANSWER}).json()["error"]
    assert refused["message"].endswith("calls done: 0, failed: 0, not known: 1"), refused


@pytest.mark.usefixtures("drains_quickly")
def test_a_second_signal_ends_it_at_once(replicas):
    one, other = replicas(2)
    task = run(one.url, "probe.slow(seconds=60)")
    told_to_stop(one)
    os.kill(one.pid, signal.SIGTERM)
    assert one.process.wait(30) == 0
    failed = rpc(other.url, "tasks/get", task).json()["result"]
    assert (failed["status"], "not known: 1" in failed["error"]["message"]) == ("failed", True), failed
