"""Sessions over REST: list, read, rename, delete, export, and tools that the person calls in them."""

import asyncio
import json

import jsonschema_rs
import pytest
from ask.harness import KEY, Harness
from ask.stand_in import Says, Wants
from helpers import session_text
from interfaces.rest.ask.asgi_client import person, users

from onetool.app.operations.sessions import MAX_RESULT
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.rest.openapi import openapi_document

PACK = f'''
def price(item: str, card_token: str = "") -> str:
    """What it costs."""
    return f"{{item}} costs 3. {KEY}"

def long() -> str:
    """Say much."""
    return "word " * 2000

def fails() -> str:
    """It never works."""
    raise ValueError("the scales are broken")

def pay(item: str, password: str) -> str:
    """Pay for it."""
    return f"paid {{item}} with {{password}}"
'''
DRAWING = {"name": "a.png", "kind": "image/png", "data": "iVBORw0KGgo="}


@pytest.fixture
def harness(tmp_path):
    with Harness(tmp_path, packs={"shop": PACK}) as running:
        yield running


def send(harness, method, path, body=None, asgi_client=person, options=None, **kwargs):
    return asyncio.run(asgi_client(harness.app, **(options or {})).send(method, path, body, **kwargs))


SHAPES = {"sessions": "SessionPage", "export": "SessionDocument"}


def got(harness, path, **options):
    reply = send(harness, "GET", path, **options)
    assert reply.status == 200, reply.body
    checker(harness, SHAPES.get(path.partition("?")[0].rpartition("/")[2], "SessionDocument")).validate(reply.json)
    return reply.json


def checker(harness, shape):
    document = openapi_document(harness.app)
    schema = {"$ref": f"#/components/schemas/{shape}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema, offline=True)


def ask(harness, script, prompt="What is it?", **body):
    harness.model.will(*script)
    reply = send(harness, "POST", "/ask", {"prompt": prompt, "approve": "always", **body})
    assert reply.status == 200, reply.body
    return reply.json["sessionId"]


def set_modified(harness, id, at):
    database = SqliteDatabase(harness.app.config.home / "state.db")
    database.write(lambda work: work.execute("UPDATE ask_sessions SET modified = %s WHERE id = %s", (at, id)))
    database.close()


# Passwords


def test_a_password_that_a_tool_repeats_is_not_kept(harness):
    args = {"item": "tea", "password": "p4ssw0rd!"}
    id = ask(harness, [Says(calls=[Wants("shop__pay", args)]), "Done."])
    called = send(harness, "POST", f"/ask/sessions/{id}/calls", {"name": "shop.pay", "args": args})
    assert called.json["value"] == "paid tea with p4ssw0rd!"  # which the person sent
    ask(harness, [Says(calls=[Wants("ot__call", {"name": "shop.pay", "args": args})]), "Done."], session=id)
    kept = session_text(harness.app.config.home, id)
    assert "p4ssw0rd!" not in kept
    assert kept.count("paid tea with ***") == 3
    for form in ("json", "markdown"):
        assert b"p4ssw0rd!" not in send(harness, "GET", f"/ask/sessions/{id}/export?format={form}").body


# The list


def test_the_newest_comes_first_page_by_page(harness):
    assert got(harness, "/ask/sessions") == {"sessions": [], "nextPageToken": None}
    for place in range(5):
        ask(harness, ["Yes."], f"Question {place}?", session=f"s{place}", newSession=True)
        set_modified(harness, f"s{place}", 1_700_000_000 + place)
    page = got(harness, "/ask/sessions?pageSize=2")
    assert page["sessions"][0] == {
        "id": "s4",
        "title": "Question 4?",
        "createdAt": page["sessions"][0]["createdAt"],
        "modifiedAt": "2023-11-14T22:13:24.000Z",
        "turns": 1,
        "model": "stand-in",
        "provider": "openai",
    }
    listed = [one["id"] for one in page["sessions"]]
    while token := page["nextPageToken"]:
        page = got(harness, f"/ask/sessions?pageSize=2&pageToken={token}")
        listed += [one["id"] for one in page["sessions"]]
    assert listed == ["s4", "s3", "s2", "s1", "s0"]
    forged = send(harness, "GET", "/ask/sessions?pageToken=abc")
    assert (forged.status, forged.json["code"]) == (400, "bad_page_token")


# One session


def test_a_conversation_is_all_messages_with_their_calls(harness):
    calls = [Wants("shop__price", {"item": "tea", "card_token": "4242"}), Wants("shop__fails", {})]
    id = ask(harness, [Says("I look.", calls=calls), "Tea is 3."], "What is tea?", files=[DRAWING])
    ask(harness, [Says("Yes.", usage=(20, 2))], "Sure?", session=id)
    read = got(harness, f"/ask/sessions/{id}")
    assert (read["id"], read["title"], read["turns"], read["damaged"]) == (id, "What is tea?", 2, 0)
    assert read["usage"] == {"input": 42, "output": 16, "cached": 0}
    first, looks, says, second, yes = read["messages"]
    assert (first["role"], first["text"], first["files"]) == (
        "user",
        "What is tea?",
        [{"name": "a.png", "kind": "image/png"}],
    )
    assert (looks["role"], looks["text"], [one["state"] for one in looks["calls"]]) == (
        "assistant",
        "I look.",
        ["ok", "failed"],
    )
    price = looks["calls"][0]
    assert (price["name"], price["args"], price["isCut"]) == (
        "shop.price",
        {"item": "tea", "card_token": "***"},
        False,
    )
    assert "tea costs 3." in price["result"]
    assert "<result" not in price["result"]
    assert ("usage" in looks, says["usage"]) == (False, {"input": 22, "output": 14, "cached": 0})
    assert (second["text"], yes["usage"]["input"], yes["model"]) == ("Sure?", 20, "stand-in")
    assert KEY not in json.dumps(read)
    assert got(harness, "/ask/sessions/last")["id"] == id


def test_what_is_long_is_cut_and_an_export_has_it_all(harness):
    long = {"item": "x" * 20_000}
    id = ask(harness, [Says(calls=[Wants("shop__long", {}), Wants("shop__price", long)]), "Much."], files=[DRAWING])
    cut, price = got(harness, f"/ask/sessions/{id}")["messages"][1]["calls"]
    assert (len(cut["result"]), cut["isCut"]) == (MAX_RESULT, True)
    assert (price["args"], len(price["argsText"]), price["isCut"]) == (None, MAX_RESULT, True)
    whole = got(harness, f"/ask/sessions/{id}/export?format=json")
    much, price = whole["messages"][1]["calls"]
    assert (len(much["result"]) > 9_000, price["args"], price["isCut"]) == (True, long, False)
    assert whole["messages"][0]["files"] == [DRAWING]


def test_an_export_is_markdown_unless_json_is_wanted(harness):
    id = ask(harness, ["It is tea."])
    path = f"/ask/sessions/{id}/export"
    for options in ({}, {"accept": "text/markdown"}, {"accept": "text/markdown, application/json;q=0.5"}):
        reply = send(harness, "GET", path, **options)
        assert reply.headers["content-type"] == "text/markdown; charset=utf-8"
        assert "> It is tea." in reply.body.decode()
        assert reply.headers["content-disposition"] == f'attachment; filename="session-{id}.md"'
    assert send(harness, "GET", path, accept="application/json").json["id"] == id
    assert send(harness, "GET", f"{path}?format=markdown", accept="application/json").json is None
    refused = send(harness, "GET", f"{path}?format=pdf")
    assert (refused.status, refused.json["code"]) == (400, "bad_parameter")


def test_a_title_stays_and_renaming_is_no_use(harness):
    first, second = ask(harness, ["One."], "First?"), ask(harness, ["Two."], "Second?")
    set_modified(harness, first, 1_700_000_000)
    set_modified(harness, second, 1_700_000_001)
    renamed = send(harness, "PATCH", f"/ask/sessions/{first}", {"title": f" Tea \n time {KEY} "})
    assert (renamed.status, renamed.json["title"]) == (200, "Tea time ***")
    assert [one["title"] for one in got(harness, "/ask/sessions")["sessions"]] == ["Second?", "Tea time ***"]
    assert got(harness, "/ask/sessions/last")["id"] == second
    ask(harness, [Says("word " * 3000)], "More?", session=first)
    ask(harness, ["Yes."], "And?", session=first)
    newest = got(harness, "/ask/sessions")["sessions"][0]
    assert (newest["id"], newest["title"], newest["turns"]) == (first, "Tea time ***", 3)
    send(harness, "PATCH", f"/ask/sessions/{first}", {"title": "Coffee"})
    assert got(harness, f"/ask/sessions/{first}")["title"] == "Coffee"
    assert harness.app.sessions.list()[0].title == "Coffee"


@pytest.mark.parametrize("body", [{}, {"title": ""}, {"title": " \u200b "}, {"title": "x" * 201}, {"name": "x"}, []])
def test_a_title_that_is_none(harness, body):
    id = ask(harness, ["One."], "First?")
    assert send(harness, "PATCH", f"/ask/sessions/{id}", body).status == 400
    assert got(harness, f"/ask/sessions/{id}")["title"] == "First?"


def test_what_is_deleted_is_gone(harness):
    id = ask(harness, ["One."])
    assert send(harness, "DELETE", f"/ask/sessions/{id}").status == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("PATCH", ""), ("GET", "/export"), ("POST", "/calls")):
        body = {"PATCH": {"title": "x"}, "POST": {"name": "time.now"}}.get(method)
        reply = send(harness, method, f"/ask/sessions/{id}{path}", body)
        assert (reply.status, reply.json["code"]) == (404, "not_found"), method
    assert not harness.app.sessions.has(id)
    for bad in ("..%2Fx", "a%00", "-x", "x" * 65):
        assert send(harness, "GET", f"/ask/sessions/{bad}").json["code"] == "bad_path"


def test_a_session_with_a_turn_under_way_is_not_changed(harness):
    harness.model.will(Says("One word after another.", pieces=20, delay=0.1))

    async def work():
        asgi_client = person(harness.app)
        async with asgi_client.asking(session="s", newSession=True) as stream:
            await stream.next("text")
            read = await asgi_client.send("GET", "/ask/sessions/s")
            changed = [
                await asgi_client.send("PATCH", "/ask/sessions/s", {"title": "x"}),
                await asgi_client.send("DELETE", "/ask/sessions/s"),
                await asgi_client.send("POST", "/ask/sessions/s/calls", {"name": "time.now"}),
            ]
            return read, changed

    read, changed = asyncio.run(work())
    assert (read.status, len(read.json["messages"])) == (200, 1)
    assert [(one.status, one.json["code"]) for one in changed] == [(409, "busy")] * 3


# Who may


def requests_to(id):
    """Every way to a session: the method, the path, the body."""
    yield "GET", f"/ask/sessions/{id}", None
    yield "PATCH", f"/ask/sessions/{id}", {"title": "x"}
    yield "DELETE", f"/ask/sessions/{id}", None
    yield "GET", f"/ask/sessions/{id}/export", None
    yield "POST", f"/ask/sessions/{id}/calls", {"name": "time.now"}
    yield "POST", "/ask", {"prompt": "And then?", "session": id}


def _without_id(refused):
    """The body as text, without the id of the request."""
    return refused.body.decode().replace(refused.json["request_id"], "…")


def test_a_session_of_another_user_is_like_one_that_is_not_there(harness):
    harness.model.will("One.")
    asked = send(harness, "POST", "/ask", {"prompt": "What is it?"}, asgi_client=users, user="ada")
    id, unknown = asked.json["sessionId"], "20200101-000000-aaaa"
    for (method, path, body), (_, other, unknown_body) in zip(requests_to(id), requests_to(unknown), strict=True):
        theirs = send(harness, method, path, body, asgi_client=users, user="bob")
        nobodys = send(harness, method, other, unknown_body, asgi_client=users, user="bob")
        assert (theirs.status, theirs.json["code"]) == (404, "not_found"), (method, path)
        assert _without_id(theirs).replace(id, unknown) == _without_id(nobodys)
    assert send(harness, "GET", "/ask/sessions", asgi_client=users, user="bob").json["sessions"] == []
    assert send(harness, "GET", "/ask/sessions/last", asgi_client=users, user="bob").status == 404
    assert send(harness, "GET", "/ask/sessions").json["sessions"] == []  # nor those of who has no name
    read = send(harness, "GET", f"/ask/sessions/{id}", asgi_client=users, user="ada")
    assert (read.status, read.json["title"]) == (200, "What is it?")


def test_an_id_that_a_user_chooses_does_not_tell_that_another_has_it(harness):
    said = {}
    for user, text in (("ada", "From Ada."), ("bob", "From Bob.")):
        harness.model.will(text)
        body = {"prompt": f"I am {user}", "session": "shopping", "newSession": True}
        said[user] = send(harness, "POST", "/ask", body, asgi_client=users, user=user)
    assert [(one.status, one.json["sessionId"]) for one in said.values()] == [(200, "shopping")] * 2
    for user in ("ada", "bob"):
        read = send(harness, "GET", "/ask/sessions/shopping", asgi_client=users, user=user).json
        assert [one["text"] for one in read["messages"] if one["role"] == "user"] == [f"I am {user}"]


def test_where_nothing_may_be_changed_sessions_are_only_read(harness):
    id = ask(harness, ["One."])
    closed = {"options": {"allowed": ["time.now"]}}
    for method, body in (("PATCH", {"title": "x"}), ("DELETE", None)):
        reply = send(harness, method, f"/ask/sessions/{id}", body, **closed)
        assert (reply.status, reply.json["code"]) == (403, "read_only")
    assert got(harness, f"/ask/sessions/{id}", **closed)["title"] == "What is it?"


# Calls of the person


def test_a_call_of_the_person_is_part_of_the_conversation(harness):
    reply = send(harness, "POST", "/ask/calls", {"name": "shop.price", "args": {"item": "tea", "card_token": "4242"}})
    assert (reply.status, reply.json["ok"]) == (200, True)
    id = reply.json["sessionId"]
    checker(harness, "UserCallResult").validate(reply.json)
    assert reply.json["value"].startswith("tea costs 3.")
    assert KEY not in reply.body.decode()
    failed = send(harness, "POST", f"/ask/sessions/{id}/calls", {"name": "shop.fails"})
    assert (failed.status, failed.json["ok"], failed.json["sessionId"]) == (200, False, id)
    checker(harness, "UserCallResult").validate(failed.json)
    assert "the scales are broken" in failed.json["error"]["message"]
    ask(harness, ["Tea is 3."], "What is tea?", session=id)
    assert "tea costs 3." in harness.said_to_model()
    one, two, *_ = got(harness, f"/ask/sessions/{id}")["messages"]
    assert (one["role"], one["text"], one["calls"][0]["args"]) == ("user", "", {"item": "tea", "card_token": "***"})
    assert two["calls"][0]["state"] == "failed"


def test_a_call_that_can_not_be_made_begins_no_session(harness):
    for body, status, options in (
        ({"name": "shop.prize"}, 404, {}),
        ({"name": "shop.price"}, 403, {"options": {"allowed": ["time.now"]}}),
        ({"args": {}}, 400, {}),
        ({"name": "shop.price", "args": []}, 400, {}),
    ):
        assert send(harness, "POST", "/ask/calls", body, **options).status == status, body
    assert got(harness, "/ask/sessions")["sessions"] == []
    wrong = send(harness, "POST", "/ask/calls", {"name": "shop.price", "args": {"itm": 1}})
    assert (wrong.status, wrong.json["code"], wrong.json["pointer"]) == (400, "invalid_args", "/args/itm")


def test_every_user_of_a_web_app_can_call_in_a_new_session(harness):
    assert send(harness, "POST", "/ask/calls", {"name": "time.now"}, asgi_client=users).json["ok"]


# With a database


@pytest.mark.long
def test_a_conversation_goes_on_at_another_replica(tmp_path, database_url):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with (
        Harness(tmp_path / "one", packs={"shop": PACK}, database=database_url) as one,
        Harness(tmp_path / "other", packs={"shop": PACK}, database=database_url) as other,
    ):
        id = ask(one, [Says(calls=[Wants("shop__price", {"item": "tea"})]), "It costs 3."])
        assert ask(other, ["Yes, really."], "Really?", session=id) == id
        assert [said["text"] for said in got(one, f"/ask/sessions/{id}")["messages"] if said.get("text")] == [
            *("What is it?", "It costs 3.", "Really?", "Yes, really."),
        ]
        called = send(other, "POST", f"/ask/sessions/{id}/calls", {"name": "shop.price", "args": {"item": "tea"}})
        assert called.status == 200, called.body
        assert send(one, "PATCH", f"/ask/sessions/{id}", {"title": "Tea"}).status == 200
        assert [listed["title"] for listed in got(other, "/ask/sessions")["sessions"]] == ["Tea"]
        assert send(other, "DELETE", f"/ask/sessions/{id}").status == 204
        assert send(one, "GET", f"/ask/sessions/{id}").status == 404
        assert not (tmp_path / "one" / "state.db").exists()


def test_a_database_that_is_away_is_told(tmp_path):
    with Harness(tmp_path, database="postgresql://nobody@127.0.0.1:1/nothing") as harness:
        for method, path, body in (
            ("GET", "/ask/sessions", None),
            ("GET", "/ask/sessions/x", None),
            ("DELETE", "/ask/sessions/x", None),
            ("POST", "/ask", {"prompt": "What is it?"}),
        ):
            refused = send(harness, method, path, body)
            assert (refused.status, refused.json["code"]) == (503, "database_away"), refused.body
            assert "can't be checked now" in refused.json["detail"]  # nobody knows which tokens there are
            assert refused.headers["retry-after"] == "1"
