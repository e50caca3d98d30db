"""Tasks that one replica runs and the other one is asked about."""

import re

from helpers import until
from interfaces.mcp.peers import ABLE, TASKS

KNOWS = {**ABLE, "extensions": {TASKS: {}}}
ADA = {"name": {"action": "accept", "content": {"name": "Ada"}}}


def begin(peer, tool, **arguments):
    result = peer.result("tools/call", {"name": f"jobs__{tool}", "arguments": arguments})
    assert result["resultType"] == "task", result
    return {"taskId": result["taskId"]}


def settled(peer, task, *statuses):
    def looked_at():
        found = peer.result("tasks/get", task)
        return found if found["status"] in statuses else None

    return until(looked_at)


def test_both_tell_of_a_task(peer, tmp_path):
    one = peer("new", capabilities=KNOWS)
    task = begin(one, "job", path=str(tmp_path / "it"))
    assert re.fullmatch("[0-9a-f]{40}", task["taskId"])
    assert [one.result("tasks/get", task)["status"] for _ in range(4)] == ["working"] * 4
    (tmp_path / "it").touch()
    done = settled(one, task, "completed")
    assert [one.result("tasks/get", task)["result"] for _ in range(2)] == [done["result"]] * 2


def test_a_task_is_answered_and_cancelled_through_the_other(peer, tmp_path):
    one = peer("new", capabilities=KNOWS)
    asking = begin(one, "asking_job")
    assert "name" in settled(one, asking, "input_required")["inputRequests"]
    one.result("tasks/update", {**asking, "inputResponses": ADA})
    assert settled(one, asking, "completed")["result"]["content"][0]["text"] == "done for Ada"
    for number in range(2):
        task = begin(one, "job", path=str(tmp_path / str(number)))
        for _ in range(number):
            one.result("tools/list")
        one.result("tasks/cancel", task)
        until((tmp_path / f"{number}.cancelled").exists)


def test_a_task_that_there_never_was(peer):
    one = peer("new", capabilities=KNOWS)
    for id in ("0" * 40, "0" * 32, "x"):
        for _ in range(2):
            assert "unknown or expired task" in one.error("tasks/get", {"taskId": id})["message"], id
