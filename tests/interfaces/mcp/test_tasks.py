"""Calls that may take long, for clients that know tasks: the call is answered with a task, which is asked about."""

import re

import httpx
import pytest
import warm
from helpers import until
from interfaces.mcp.peers import ABLE, TASKS, HttpPeer
from interfaces.mcp.servers import CONFIG

KNOWS = {**ABLE, "extensions": {TASKS: {}}}
UNKNOWN = "taskId: unknown or expired task"
ADA = {"name": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture(params=["stdio-new", "http-new"])
def knowing(request, shared_peers):
    """A client that knows tasks, and can be asked."""
    peer = shared_peers(request.param)
    peer.forget()
    peer.capabilities = KNOWS
    yield peer
    peer.capabilities = ABLE


def begin(peer, tool, **arguments):
    """Call something slow; the task that it becomes."""
    result = peer.result("tools/call", {"name": f"jobs__{tool}", "arguments": arguments})
    assert result["resultType"] == "task", result
    return result


def get(peer, task):
    return peer.result("tasks/get", {"taskId": task["taskId"]})


def settled(peer, task, *statuses):
    """The task, once it has one of these statuses."""

    def looked_at():
        found = get(peer, task)
        return found if found["status"] in statuses else None

    return until(looked_at)


def test_a_slow_call_becomes_a_task_that_tells_its_result(knowing, tmp_path):
    task = begin(knowing, "job", path=str(tmp_path / "it"))
    assert re.fullmatch("[0-9a-f]{32}", task["taskId"])
    assert (task["status"], task["ttlMs"], task["pollIntervalMs"]) == ("working", 3_600_000, 500)
    assert task["createdAt"].endswith("Z")
    assert task["createdAt"] <= task["lastUpdatedAt"]
    assert "content" not in task
    found = get(knowing, task)
    assert (found["resultType"], found["status"], found["taskId"]) == ("complete", "working", task["taskId"])
    assert not {"result", "error", "inputRequests"} & set(found)
    (tmp_path / "it").touch()
    done = settled(knowing, task, "completed")
    assert done["result"]["content"] == [{"type": "text", "text": "done"}]
    assert get(knowing, task)["result"] == done["result"]  # as often as one likes


def test_a_call_that_is_done_at_once_stays_a_call(knowing):
    result = knowing.result("tools/call", {"name": "jobs__quick"})
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "done")
    assert knowing.result("tools/call", {"name": "plus", "arguments": {"a": 1}})["resultType"] == "complete"


def test_a_tool_that_says_nothing_of_tasks_is_waited_for(knowing, tmp_path):
    path = tmp_path / "it"
    slow = knowing.begin("tools/call", {"name": "working__wait_for", "arguments": {"path": str(path)}})
    until((tmp_path / "it.began").exists)
    knowing.result("tools/list")
    assert not slow.is_answered
    path.touch()
    assert slow.answer()["result"]["resultType"] == "complete"


def test_without_the_extension_the_call_is_waited_for(shared_peers, tmp_path):
    for way in ("stdio-old", "stdio-new", "http-old", "http-new"):
        peer, path = shared_peers(way), tmp_path / way
        for tool in ("job", "long_job") if way.endswith("old") else ("job",):
            slow = peer.begin("tools/call", {"name": f"jobs__{tool}", "arguments": {"path": str(path)}})
            peer.result("tools/list")
            assert not slow.is_answered
            path.touch()
            assert slow.answer()["result"]["content"][0]["text"] == "done"
            path.unlink()


def test_a_tool_that_requires_tasks_refuses_clients_that_do_not_know_them(shared_peers, tmp_path):
    for way in ("stdio-new", "http-new"):
        refused = shared_peers(way).error("tools/call", {"name": "jobs__long_job", "arguments": {"path": "x"}})
        assert refused["code"] == -32021
        assert refused["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


def test_a_tool_that_requires_tasks_becomes_one(knowing, tmp_path):
    task = begin(knowing, "long_job", path=str(tmp_path / "it"))
    (tmp_path / "it").touch()
    assert settled(knowing, task, "completed")["result"]["content"][0]["text"] == "done"


def test_a_task_that_fails_is_completed_with_what_the_tool_said(knowing):
    """A tool that fails is a result; only what is not a result at all makes a task fail."""
    done = settled(knowing, begin(knowing, "failing_job"), "completed", "failed")
    assert (done["status"], done["result"]["isError"]) == ("completed", True)
    assert done["result"]["content"][0]["text"] == "Error: the job failed"


def test_a_task_fails_when_its_client_lacks_what_it_needs(http_peer):
    peer = http_peer("new", capabilities={"extensions": {TASKS: {}}})
    done = settled(peer, begin(peer, "asking_job"), "completed", "failed")
    assert done["status"] == "failed"
    assert done["error"]["code"] == -32021
    assert "result" not in done


def test_a_task_may_ask_and_is_answered_by_an_update(knowing):
    task = begin(knowing, "asking_job")
    asking = settled(knowing, task, "input_required")
    assert list(asking["inputRequests"]) == ["name"]
    assert asking["inputRequests"]["name"]["params"]["message"] == "Who are you?"
    for nothing in ({}, {"other": ADA["name"]}, {"name": {"action": "accept", "content": {"name": 7}}}):
        result = knowing.result("tasks/update", {"taskId": task["taskId"], "inputResponses": nothing})
        assert result["resultType"] == "complete"
        assert get(knowing, task)["status"] == "input_required"
    knowing.result("tasks/update", {"taskId": task["taskId"], "inputResponses": ADA})
    done = settled(knowing, task, "completed")
    assert done["result"]["content"][0]["text"] == "done for Ada"
    assert "inputRequests" not in done
    knowing.result("tasks/update", {"taskId": task["taskId"], "inputResponses": ADA})  # comes too late, and is nothing


def test_a_question_that_comes_first_is_asked_before_there_is_a_task(knowing):
    call = {"name": "jobs__asks_first"}
    asked = knowing.result("tools/call", call)
    assert asked["resultType"] == "input_required"
    again = {**call, "inputResponses": ADA, "requestState": asked["requestState"]}
    task = knowing.result("tools/call", again)
    assert task["resultType"] == "task"
    assert settled(knowing, task, "completed")["result"]["content"][0]["text"] == "done for Ada"


def test_a_task_can_be_called_off(knowing, tmp_path):
    task = begin(knowing, "job", path=str(tmp_path / "it"))
    assert knowing.result("tasks/cancel", {"taskId": task["taskId"]})["resultType"] == "complete"
    until((tmp_path / "it.cancelled").exists)
    done = settled(knowing, task, "cancelled")
    assert not {"result", "error"} & set(done)
    knowing.result("tasks/cancel", {"taskId": task["taskId"]})
    assert get(knowing, task)["status"] == "cancelled"


def test_calling_off_what_is_done_changes_nothing(knowing):
    task = begin(knowing, "failing_job")
    settled(knowing, task, "completed")
    knowing.result("tasks/cancel", {"taskId": task["taskId"]})
    assert get(knowing, task)["status"] == "completed"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_task_that_there_is_not(knowing, method):
    parked = knowing.result("tools/call", {"name": "asking__name"})["requestState"]
    for id in ("0" * 32, "", "é", parked):
        refused = knowing.error(method, {"taskId": id, "inputResponses": {}})
        assert (refused["code"], refused["message"]) == (-32602, UNKNOWN)


def test_those_who_do_not_know_tasks_can_not_ask_about_one(knowing, tmp_path):
    task = begin(knowing, "job", path=str(tmp_path / "it"))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        params = {"taskId": task["taskId"], "inputResponses": {}}
        refused = knowing.error(method, params, capabilities=ABLE)
        assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    assert get(knowing, task)["status"] == "working"
    (tmp_path / "it").touch()


def test_a_task_belongs_to_whoever_began_it(serve, tmp_path):
    config = tmp_path / "onetool.yaml"
    (tmp_path / "packs").symlink_to(CONFIG.parent / "packs")
    config.write_text("menu: direct\nhttp: {token: first-token-of-two}\n")
    server = serve(config=config)
    task = begin(HttpPeer(server, "new", token="first-token-of-two", capabilities=KNOWS), "job", path="nowhere")
    config.write_text("menu: direct\nhttp: {token: other-token-of-two}\n")
    server.reload()
    other = HttpPeer(server, "new", token="other-token-of-two", capabilities=KNOWS)
    until(lambda: other.send(other.message("tools/list")).status == 200)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert other.error(method, {"taskId": task["taskId"], "inputResponses": {}})["message"] == UNKNOWN


def test_tasks_are_gone_after_their_time(serve, tmp_path):
    config = tmp_path / "onetool.yaml"
    (tmp_path / "packs").symlink_to(CONFIG.parent / "packs")
    config.write_text("menu: direct\nresults: {ttl_s: 0.5}\n")
    peer = HttpPeer(serve(config=config), "new", capabilities=KNOWS)
    task = begin(peer, "job", path=str(tmp_path / "it"))
    assert task["ttlMs"] == 500
    until((tmp_path / "it.cancelled").exists)
    assert peer.error("tasks/get", {"taskId": task["taskId"]})["message"] == UNKNOWN


def test_tasks_do_not_keep_a_server_from_ending(stdio_peer, tmp_path):
    peer = stdio_peer("new", "--menu", "direct", capabilities=KNOWS)
    begin(peer, "job", path=str(tmp_path / "it"))
    assert peer.close() == 0
    assert (tmp_path / "it.cancelled").exists()


def test_code_that_takes_long_becomes_a_task(stdio_peer, tmp_path):
    config = tmp_path / "onetool.yaml"
    (tmp_path / "packs").symlink_to(CONFIG.parent / "packs")
    config.write_text("run: {timeout_s: 60}\npacks: [packs]\n")
    env = {warm.CONSTANTS: '{"onetool.interfaces.mcp.menus.RUN_TASK_AFTER": 0.1}'}
    peer = stdio_peer("new", config=config, capabilities={"extensions": {TASKS: {}}}, env=env)
    call = {"name": "run", "arguments": {"code": f"working.wait_for(path={str(tmp_path / 'it')!r})"}}
    begun = peer.result("tools/call", call)
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    (tmp_path / "it").touch()
    task = {"taskId": begun["taskId"]}
    done = until(lambda: (told := peer.result("tasks/get", task))["status"] == "completed" and told)
    assert done["result"]["content"] == [{"type": "text", "text": "it came"}]


def test_code_that_was_cancelled_says_what_was_done(serve, tmp_path):
    """A task says so in its status; a request gets no answer, so that the log and the audit log alone say it."""
    config, path = tmp_path / "onetool.yaml", str(tmp_path / "it")
    (tmp_path / "packs").symlink_to(CONFIG.parent / "packs")
    config.write_text("run: {timeout_s: 60}\npacks: [packs]\nhttp: {token: a-token-of-an-admin}\n")
    server = serve(config=config, **{warm.CONSTANTS: '{"onetool.interfaces.mcp.menus.RUN_TASK_AFTER": 0.1}'})
    peer = HttpPeer(server, "new", token="a-token-of-an-admin", capabilities=KNOWS)
    call = {"name": "run", "arguments": {"code": f"tools.echo(message='a')\nworking.hang(path={path!r})"}}
    task = {"taskId": peer.result("tools/call", call)["taskId"]}
    until((tmp_path / "it.began").exists)
    assert "statusMessage" not in get(peer, task)
    peer.result("tasks/cancel", task)
    told = settled(peer, task, "cancelled")["statusMessage"]
    assert told.startswith(f"done: tools.echo ×1; not known: working.hang(path={path!r:.39}")
    (tmp_path / "it.began").unlink()
    pending = peer.begin("tools/call", call, capabilities={})
    until((tmp_path / "it.began").exists)
    peer.cancel(pending)
    made = "done: tools.echo ×1; not known: working.hang ×1"  # without values
    until(lambda: server.log().count(f"was cancelled; {made}") == 2)
    headers = {"Authorization": "Bearer a-token-of-an-admin"}
    found = httpx.get(f"http://127.0.0.1:{server.port}/audit?tool=run", headers=headers).json()
    assert [(line["reason"], line["made"]) for line in found["records"]] == [("cancelled", made)] * 2
