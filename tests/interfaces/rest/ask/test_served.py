"""`POST /ask` of a real server, with a model that a script stands for."""

import json
import socket
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import httpx
import jsonschema_rs
import pytest
from ask.stand_in import Fails, Says, StandIn, Wants
from helpers import until
from interfaces.rest.served import TOKEN, Api, problem, read_events, with_model
from upstream import Upstream

SWITCH = {
    "name": "lamp.switch",
    "description": "Switch the lamp.",
    "type": "function",
    "handler": "lamp",
    "parameters": {"type": "object", "properties": {}},
    "implementation": {"type": "mock", "mock_response": "on"},
}
NOW = Says("Let me look.", calls=[Wants("time__now", {})])
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
FIXED = {"toolCalls", "toolResults", "toolError", "sessionContextUpdated"}


def serve(folder, model, *args):
    env = with_model(
        folder,
        model,
        http={"token": TOKEN, "max_body_mb": 1},
        secrets={"OPENAI_API_KEY": "sk-of-the-server-0123"},
        tools=[SWITCH],
    )
    running = Api(real=folder, args=args, env=env)
    running.client.headers.update(HEADERS)
    return running


@pytest.fixture(scope="module")
def model():
    with StandIn() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory, model):
    running = serve(tmp_path_factory.mktemp("asked"), model)
    yield running
    assert running.stop() == 0


@pytest.fixture
def ask(server, model):
    def one(script, prompt="What time is it?", accept="*/*", **body):
        model.will(*script)
        del model.seen[:]
        return server.ask("POST", "/ask", {"prompt": prompt, **body}, headers={"Accept": accept})

    yield one
    assert not model.refused


def test_a_question_a_call_an_answer(server, ask, model):
    reply = ask([NOW, "It is noon."])
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    answer = reply.json()
    assert (answer["answer"], answer["steps"], answer["provider"], answer["model"]) == (
        "It is noon.",
        2,
        "openai",
        "stand-in",
    )
    assert answer.keys() >= FIXED
    ((call, result),) = [(one["call"], one["result"]) for one in answer["toolResults"]]
    assert (call["name"], result["ok"], answer["toolCalls"]) == ("time.now", True, [call])
    assert call.keys() == {"id", "name", "args", "source"}
    assert set(result["data"]) == {"timestamp", "iso"}
    assert (answer["sessionContextUpdated"], answer["toolError"], answer["error"]) == (True, None, None)
    assert model.seen[0].headers["authorization"] == "Bearer sk-of-the-server-0123"
    document = server.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/Answer", "components": document["components"]}
    jsonschema_rs.Draft202012Validator(schema, offline=True).validate(answer)


def test_a_session_goes_on(ask, model):
    id = ask(["One."], "Count.", session="counting", newSession=True).json()["sessionId"]
    assert ask(["Two."], "On.", session=id).json()["sessionId"] == id == "counting"
    assert [one["role"] for one in model.seen[0].body["messages"]][-3:] == ["user", "assistant", "user"]
    assert ask(["Three."], "On.", session="last").json()["sessionId"] == id
    problem(ask(["no"], session=id, newSession=True), 409, "exists")


def test_events_as_they_happen(ask):
    reply = ask([NOW, Says("It is noon.", pieces=2)], accept="text/event-stream")
    assert reply.headers["content-type"] == "text/event-stream"
    events = list(read_events(reply.text))
    names = [event.name for event in events]
    assert list(dict.fromkeys(names)) == ["started", "text", "call", "result", "answer"]
    assert all(event.data["type"] == event.name for event in events)
    said = [event.data["text"] for event in events if event.name == "text" and event.data["step"] == 2]
    assert (len(said), "".join(said)) == (2, "It is noon.")
    assert events[-1].data["answer"]["answer"] == "It is noon."
    assert events[0].data["sessionId"] == events[-1].data["answer"]["sessionId"]


def test_what_a_tool_did_is_told_when_the_model_fails_afterwards(ask):
    failed = Fails(401, "Incorrect API key provided: sk-of-the-server-0123.", "invalid_api_key")
    told = problem(ask([NOW, failed]), 502, "unauthorized")
    assert [one["result"]["ok"] for one in told["answer"]["toolResults"]] == [True]
    assert told["answer"]["error"]["reason"] == "unauthorized"
    assert told["answer"]["answer"] is None
    assert "sk-of-the-server" not in json.dumps(told)
    events = list(read_events(ask([NOW, failed], accept="text/event-stream").text))
    assert (events[-1].name, events[-1].data["reason"]) == ("error", "unauthorized")
    assert len(events[-1].data["answer"]["toolResults"]) == 1


def test_what_is_refused_before_the_model_is_asked_is_no_stream(ask, model):
    for accept in ("*/*", "text/event-stream"):
        told = problem(ask(["no"], accept=accept, provider="gemini"), 503, "no_key")
        assert "onetool auth set gemini" in "".join(told["hints"])
        assert "answer" not in told
    assert model.seen == []


def test_tools_as_far_as_they_are_allowed(ask, model):
    ask(["x"], toolAllow=["time.now", "tools.echo"])
    assert sorted(model.seen[0].tools) == ["time__now", "tools__echo"]
    hints = ask(["x"], toolAllow=["time.nwo"]).json()["hints"]
    assert hints == ["toolAllow matches no tool: time.nwo; did you mean time.now?"]
    for none in ({"toolAllow": []}, {"withTools": False}):
        ask(["x"], **none)
        assert model.seen[0].tools == []
    answer = ask([NOW, "Without."], toolAllow=["tools.echo"]).json()
    assert (answer["toolError"]["code"], answer["answer"]) == ("tool_not_found", "Without.")


def test_what_may_change_something_runs_only_where_the_client_says_so(ask):
    script = [Says(calls=[Wants("lamp__switch", {})]), "Done."]
    answer = ask(script).json()
    assert (answer["denied"], answer["toolError"]["tool"]) == (["lamp.switch"], "lamp.switch")
    assert "approve" in answer["hints"][0]
    answer = ask(script, approve="always").json()
    assert (answer["denied"], answer["toolResults"][0]["result"]["data"]) == ([], "on")


def test_the_client_of_a_stream_decides_about_calls(server, model):
    model.will(Says(calls=[Wants("lamp__switch", {})]), "Done.")
    body = {"prompt": "Switch it on.", "approve": "ask"}
    told, last = None, None
    with httpx.stream(
        "POST", f"{server.url}/ask", json=body, headers={**HEADERS, "Accept": "text/event-stream"}, timeout=20
    ) as reply:
        name = None
        for line in reply.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                last = json.loads(line.removeprefix("data: "))
            if name == "approval" and told is None and line.startswith("data: "):
                told = last
                place = f"/ask/{told['question']}/approvals/{told['call']}"
                problem(httpx.post(f"{server.url}{place}", json={"approve": True}), 401, "unauthorized")
                assert server.ask("POST", place, {"approve": True}).status_code == 204
    assert (told["name"], last["answer"]["answer"]) == ("lamp.switch", "Done.")
    assert last["answer"]["toolResults"][0]["result"]["data"] == "on"


def test_a_client_that_leaves_ends_the_turn_and_the_session_stays(server, ask, model):
    model.will(Says("One word after another.", pieces=20, delay=0.1))
    del model.seen[:]
    body = json.dumps({"prompt": "Take your time.", "session": "left", "newSession": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 10) as one:
        head = (
            f"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n"
        )
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        one.sendall(head.encode() + body)
        text = b""
        while b"event: text" not in text:
            text += one.recv(65536)
        problem(server.ask("POST", "/ask", {"prompt": "x", "session": "left"}), 409, "busy")
    reply = until(lambda: (said := ask(["Again."], "Go on.", session="left")).status_code != 409 and said)
    assert reply.json()["answer"] == "Again."
    said = [one["content"] for one in model.seen[0].body["messages"]]
    assert any("Take your time." in str(one) for one in said)


def test_a_token_is_needed_and_other_methods_are_refused(server, ask):
    problem(httpx.post(f"{server.url}/ask", json={"prompt": "x"}), 401, "unauthorized")
    refused = server.get("/ask")
    problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST, OPTIONS"
    assert server.ask("OPTIONS", "/ask").status_code == 204
    fits = {"name": "plan.png", "kind": "image/png", "data": "A" * (4 * 1024 * 450)}
    assert ask(["Seen."], files=[fits]).status_code == 200, "files may make the body twice as large"
    large = {"prompt": "x" * 2 * 1024**2}
    problem(server.ask("POST", "/ask", large), 413, "too_large")
    problem(server.ask("POST", "/ask", {"prompt": "x"}, headers={"Origin": "https://evil.example"}), 403, "bad_origin")


def test_the_allow_list_of_the_server_holds_here(tmp_path, model):
    server = serve(tmp_path, model, "--tool-allow", "time.now")
    try:
        model.will("x")
        del model.seen[:]
        server.ask("POST", "/ask", {"prompt": "x"})
        server.ask("POST", "/ask", {"prompt": "x", "toolAllow": ["time.now", "tools.echo"]})
        server.ask("POST", "/ask", {"prompt": "x", "toolAllow": ["tools.echo"]})
        assert [one.tools for one in model.seen] == [["time__now"], ["time__now"], []]
    finally:
        server.stop()


def test_many_at_once_never_cross(server, ask, model):
    model.will(lambda seen: Says(str(seen.body["messages"][-1]["content"])))

    def one(number):
        asked = {"prompt": f"Say {number}.", "withTools": False}
        return server.ask("POST", "/ask", asked).json()["answer"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(16))) == [f"Say {number}." for number in range(16)]


@pytest.mark.parametrize("menu", ["direct", "run"])
def test_a_tool_sends_a_file_that_was_attached(tmp_path, model, menu):
    """The model knows its name alone: of a picture it could not repeat the content."""
    picture = b"\x89PNG\r\n\x1a\n"
    with Upstream() as upstream:
        hosts = [{"host": upstream.netloc, "allowPrivate": True}]
        env = with_model(tmp_path, model, allowedHosts=hosts, secrets={"OPENAI_API_KEY": "sk-of-the-server-0123"})
        api = Api(real=tmp_path, env=env)
        try:
            schema = {"type": "object", "properties": {"file": {"type": "string"}}}
            request = {"method": "PUT", "urlTemplate": upstream.url, "bodyFile": "${file}"}
            api.tool(slug="put", type="http", argSchema=schema, httpImpl={"request": request}, pythonImpl=None)
            calls = [Wants("mine__put", {"file": "plan.png"})]
            if menu == "run":
                calls = [Wants("run", {"code": 'mine.put(file="plan.png")'})]
            model.will(Says("I send it.", calls=calls), Says("Done."))
            del model.seen[:]
            file = {"name": "plan.png", "kind": "image/png", "data": b64encode(picture).decode()}
            body = {"prompt": "Send it.", "files": [file], "menu": menu, "approve": "always"}
            reply = api.ask("POST", "/ask", body)
            assert reply.json()["answer"] == "Done.", reply.text
            assert "Attached pictures: plan.png" in json.dumps(model.seen[0].body)
        finally:
            api.stop()
    (seen,) = upstream.seen
    assert (seen.body, seen.headers["content-type"]) == (picture, "image/png")
