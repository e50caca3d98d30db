"""What there is beside tools: prompts, resources, and completion of their arguments."""

import json
from base64 import b64decode

from helpers import each
from interfaces.mcp.peers import META


def words(result):
    return [(message["role"], message["content"]["text"]) for message in result["messages"]]


# Prompts


def test_snippets_and_the_prompts_of_packs_are_listed(peer):
    listed = {prompt["name"]: prompt for prompt in peer.result("prompts/list")["prompts"]}
    assert list(listed) == ["squares", "greeting", "dialogue", "pictured", "for_whom", "broken_prompt"]
    assert listed["squares"] == {
        "name": "squares",
        "description": "The first squares",
        "arguments": [
            {"name": "count", "description": "how many", "required": True},
            {"name": "loud", "description": "", "required": False},
            {"name": "name", "description": "", "required": False},
        ],
    }
    assert listed["greeting"] == {
        "name": "greeting",
        "title": "A greeting",
        "description": "Greet somebody.",
        "arguments": [
            {"name": "name", "description": "Whom.", "required": True},
            {"name": "times", "description": "How often.", "required": False},
            {"name": "color", "description": "How.", "required": False},
        ],
    }


def test_a_snippet_becomes_code_to_run(peer):
    got = peer.result("prompts/get", {"name": "squares", "arguments": {"count": "4"}})
    ((role, text),) = words(got)
    assert role == "user"
    assert "print('squares')\n[n * n for n in range(4)]" in text
    assert got["description"] == "The first squares"


@each(
    ("arguments", "expected"),
    [({}, "count"), ({"count": "many"}, "count"), ({"count": "1", "cuont": "2"}, "cuont")],
)
def test_a_snippet_with_wrong_arguments_says_which(peer, arguments, expected):
    refused = peer.error("prompts/get", {"name": "squares", "arguments": arguments})
    assert refused["code"] == -32602
    assert expected in refused["message"]


def test_texts_become_what_a_prompt_wants(peer):
    got = peer.result("prompts/get", {"name": "greeting", "arguments": {"name": "12", "times": "2"}})
    assert got["description"] == "Greet somebody."
    assert words(got) == [("user", "red: Hello, 12! Hello, 12! ")]


@each(
    ("arguments", "expected"),
    [
        ({}, "name"),
        ({"name": "Ada", "times": "often"}, "times: expected a whole number"),
        ({"name": "Ada", "color": "blue"}, "color"),
        ({"name": "Ada", "colour": "red"}, "colour"),
    ],
)
def test_a_prompt_with_wrong_arguments_says_which(peer, arguments, expected):
    refused = peer.error("prompts/get", {"name": "greeting", "arguments": arguments})
    assert refused["code"] == -32602
    assert expected in refused["message"]


def test_a_prompt_may_be_a_dialogue_or_have_pictures(peer):
    assert words(peer.result("prompts/get", {"name": "dialogue"})) == [
        ("user", "Knock, knock."),
        ("assistant", "Who's there?"),
    ]
    picture, text = peer.result("prompts/get", {"name": "pictured"})["messages"]
    assert picture == {"role": "user", "content": {"type": "image", "data": "cG5n", "mimeType": "image/png"}}
    assert text["content"] == {"type": "text", "text": "What is this?"}


def test_a_prompt_that_is_not_there_and_one_that_fails(peer):
    refused = peer.error("prompts/get", {"name": "greting"})
    assert (refused["code"], refused["message"]) == (-32602, "Unknown prompt: greting; did you mean greeting?")
    refused = peer.error("prompts/get", {"name": "broken_prompt"})
    assert (refused["code"], refused["message"]) == (-32603, "no prompt today")
    assert peer.error("prompts/get", {"name": "working.add"})["code"] == -32602


# Resources


def test_resources_and_templates_are_listed(peer):
    listed = {one["uri"]: one for one in peer.result("resources/list")["resources"]}
    assert list(listed) == ["ot://tools", "shelf://note", "shelf://bytes", "shelf://broken", "shelf://owner"]
    assert listed["shelf://note"] == {
        "uri": "shelf://note",
        "name": "note",
        "description": "A text.",
        "mimeType": "text/markdown",
    }
    templates = {one["uriTemplate"]: one for one in peer.result("resources/templates/list")["resourceTemplates"]}
    assert list(templates) == ["ot://tools/{name}", "ot://results/{handle}", "shelf://books/{author}/{title}"]
    assert templates["shelf://books/{author}/{title}"]["name"] == "book"


def test_the_tools_are_a_resource_and_each_is_one(peer):
    result = peer.result("resources/read", {"uri": "ot://tools"})
    (content,) = result["contents"]
    assert "working.add: Add two numbers." in content["text"].splitlines()
    if peer.is_new:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert f"{META}serverInfo" in result["_meta"]
    (content,) = peer.result("resources/read", {"uri": "ot://tools/working.add"})["contents"]
    told = json.loads(content["text"])
    assert content["mimeType"] == "application/json"
    assert (told["name"], told["signature"]) == ("working.add", "working.add(a: int, b: int = 0) -> int")
    assert told["inputSchema"]["required"] == ["a"]
    assert told["outputSchema"]["type"] == "integer"


def test_text_bytes_and_data_can_be_read(peer):
    (content,) = peer.result("resources/read", {"uri": "shelf://note"})["contents"]
    assert content == {"uri": "shelf://note", "mimeType": "text/markdown", "text": "# A note"}
    (content,) = peer.result("resources/read", {"uri": "shelf://bytes"})["contents"]
    assert (content["mimeType"], b64decode(content["blob"])) == ("application/octet-stream", b"\x00\xff")
    assert "text" not in content
    uri = "shelf://books/Ada%20Lovelace/Notes%20%C3%A9"
    (content,) = peer.result("resources/read", {"uri": uri})["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    assert json.loads(content["text"]) == {"author": "Ada Lovelace", "title": "Notes é"}


@each(
    "uri",
    [
        *("shelf://nothing", "shelf://books/a", "shelf://books/a/b/c", "shelf://books/a/unwritten"),
        *(
            "shelf://note/",
            "SHELF://note",
            "shelf://books/{author}/",
            "shelf://books/a/..%2Fb",
            "ot://",
            "ot://tools/no.such",
        ),
        *("", "x", "file:///etc/passwd"),
    ],
)
def test_what_is_not_there_can_not_be_read(peer, uri):
    refused = peer.error("resources/read", {"uri": uri})
    assert refused["code"] == (-32602 if peer.is_new else -32002)
    assert refused["data"] == {"uri": uri}
    assert "not found" in refused["message"]


def test_a_resource_that_fails_says_why(peer):
    refused = peer.error("resources/read", {"uri": "shelf://broken"})
    assert (refused["code"], refused["message"]) == (-32603, "the shelf fell down")
    assert "params.uri" in peer.error("resources/read")["message"]


# Completion


def complete(peer, ref, name, value):
    return peer.result("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})["completion"]


def test_arguments_of_prompts_are_completed(peer):
    greeting, squares = ({"type": "ref/prompt", "name": name} for name in ("greeting", "squares"))
    assert complete(peer, greeting, "color", "")["values"] == ["red", "green", "grey"]
    assert complete(peer, greeting, "color", "GR") == {"values": ["green", "grey"], "total": 2, "hasMore": False}
    assert complete(peer, greeting, "name", "")["values"] == []
    assert complete(peer, greeting, "nothing", "")["values"] == []
    assert complete(peer, squares, "loud", "")["values"] == ["true", "false"]
    assert complete(peer, squares, "name", "s")["values"] == ["squares"]
    assert complete(peer, squares, "count", "")["values"] == []


def test_names_of_tools_are_completed(peer):
    found = complete(peer, {"type": "ref/resource", "uri": "ot://tools/{name}"}, "name", "working.")
    assert "working.add" in found["values"]
    assert found["total"] == len(found["values"])
    assert (
        complete(peer, {"type": "ref/resource", "uri": "shelf://books/{author}/{title}"}, "title", "")["values"] == []
    )


@each(
    ("params", "expected"),
    [
        ({}, "params.ref is missing"),
        ({"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}}, "expected ref/prompt or ref/resource"),
        ({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}, "Unknown prompt: x"),
        ({"ref": {"type": "ref/prompt", "name": "greeting"}, "argument": {"name": "a"}}, "a name and a value"),
        ({"ref": "greeting", "argument": {}}, "params.ref: expected an object"),
    ],
)
def test_what_can_not_be_completed_is_told(peer, params, expected):
    refused = peer.error("completion/complete", params)
    assert refused["code"] == -32602
    assert expected in refused["message"]
