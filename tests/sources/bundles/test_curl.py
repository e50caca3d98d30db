"""Commands as people paste them, made into tools; and no credential stays in one."""

import json

import msgspec
import pytest
from helpers import each
from http_harness import Harness, allowed
from hypothesis import given
from hypothesis import strategies as st
from upstream import Reply, Upstream

from onetool.core.schema import CompiledSchema
from onetool.http.placeholders import TemplateError
from onetool.http.template import RequestTemplate
from onetool.http.tool import tool_to_inspect
from onetool.sources.bundles.curl import from_curl
from onetool.sources.bundles.curl.command import words
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import http_of
from onetool.sources.bundles.names import check_slug
from onetool.sources.bundles.validation import read_tool


def request(command):
    return from_curl(command).tool["httpImpl"]["request"]


def schema(command):
    return from_curl(command).tool["argSchema"]


def sent(command, **args):
    """The request of a call, with what the command itself had where nothing is given."""
    made = from_curl(command)
    content = read_tool(made.tool, "t", "1")
    defaults = {name: one["default"] for name, one in content.arg_schema["properties"].items() if "default" in one}
    args = defaults | args
    assert CompiledSchema(content.arg_schema, closed=True).check(args) == []
    return RequestTemplate(http_of(content).request, content.arg_schema).fill(
        args, lambda name: made.secrets.get(name) or f"<{name}>"
    )


def refused(command):
    with pytest.raises(InvalidError) as caught:
        from_curl(command)
    return str(caught.value)


OPENAI = r"""
$ curl https://api.openai.com/v1/chat/completions \
    -H "Content-Type: application/json" \
    -H "Authorization: Bearer $OPENAI_API_KEY" \
    -d '{
      "model": "gpt-4o",
      "messages": [{"role": "user", "content": "It'\''s me"}],
      "temperature": 0.7
    }' | jq .choices
"""
CHROME = r"""curl 'https://shop.example/api/cart/items?lang=de' \
  -X 'PUT' \
  -H 'accept: application/json, text/plain, */*' \
  -H 'accept-language: de-DE,de;q=0.9' \
  -H 'content-type: application/json' \
  -b 'session=0123abcd; theme=dark' \
  -H 'origin: https://shop.example' \
  -H 'priority: u=1, i' \
  -H 'sec-ch-ua: "Chromium";v="131", "Not_A Brand";v="24"' \
  -H 'sec-fetch-mode: cors' \
  -H 'user-agent: Mozilla/5.0 (X11; Linux x86_64)' \
  -H 'x-csrf-token: zzz-token-zzz' \
  --data-raw $'{"id":5,"note":"it\'s \u00e4\\n","gift":true,"extra":null}' \
  --compressed ;
"""


def test_one_from_the_documentation_of_an_api():
    made = from_curl(OPENAI)
    assert made.slug == "create-chat-completion"
    assert made.hosts == ["api.openai.com"]
    assert made.secrets == {"OPENAI_API_KEY": None}
    assert made.tool["httpImpl"]["request"]["auth"] == {"type": "bearer", "value": "${OPENAI_API_KEY}"}
    properties = made.tool["argSchema"]["properties"]
    assert properties["model"] == {"type": "string", "default": "gpt-4o"}
    assert properties["temperature"] == {"type": "number", "default": 0.7}
    assert json.loads(sent(OPENAI, model="other").body) == {
        "model": "other", "messages": [{"role": "user", "content": "It's me"}], "temperature": 0.7,
    }  # fmt: skip


def test_one_from_a_browser():
    made = from_curl(CHROME)
    text = msgspec.json.encode(made.tool).decode()
    for secret in ("0123abcd", "zzz-token-zzz"):
        assert secret not in text
        assert any(secret in str(value) for value in made.secrets.values())
    headers = made.tool["httpImpl"]["request"]["headers"]
    assert set(headers) == {"accept", "accept-language", "content-type", "Cookie", "origin", "user-agent"}
    assert headers["Cookie"] == "${SHOP_COOKIE}"
    out = sent(CHROME)
    assert (out.method, out.url.target) == ("PUT", "/api/cart/items?lang=de")
    assert json.loads(out.body) == {"id": 5, "note": "it's ä\n", "gift": True, "extra": None}


@each(
    ("options", "auth", "secrets"),
    [
        (
            "-u ada:pass:word",
            {"type": "basic", "username": "${EXAMPLE_USERNAME}", "password": "${EXAMPLE_PASSWORD}"},
            {"EXAMPLE_USERNAME": "ada", "EXAMPLE_PASSWORD": "pass:word"},
        ),
        ("-u sk_test_1:", {"type": "basic", "username": "${EXAMPLE_API_KEY}"}, {"EXAMPLE_API_KEY": "sk_test_1"}),
        ("-H 'Authorization: Bearer abc'", {"type": "bearer", "value": "${EXAMPLE_TOKEN}"}, {"EXAMPLE_TOKEN": "abc"}),
        (
            "-H 'Authorization: Bearer <token>'",
            {"type": "bearer", "value": "${EXAMPLE_TOKEN}"},
            {"EXAMPLE_TOKEN": None},
        ),
        (
            "-H 'Authorization: Bearer YOUR_TOKEN'",
            {"type": "bearer", "value": "${EXAMPLE_TOKEN}"},
            {"EXAMPLE_TOKEN": None},
        ),
        ("--oauth2-bearer $MY_TOKEN", {"type": "bearer", "value": "${MY_TOKEN}"}, {"MY_TOKEN": None}),
        (
            "-H 'Authorization: Basic YWRhOnBhc3M='",
            {"type": "basic", "username": "${EXAMPLE_USERNAME}", "password": "${EXAMPLE_PASSWORD}"},
            {"EXAMPLE_USERNAME": "ada", "EXAMPLE_PASSWORD": "pass"},
        ),
        (
            "-H 'X-API-Key: abc'",
            {"type": "apiKey", "name": "X-API-Key", "value": "${EXAMPLE_API_KEY}", "in": "header"},
            {"EXAMPLE_API_KEY": "abc"},
        ),
    ],
)
def test_logins(options, auth, secrets):
    made = from_curl(f"curl {options} https://api.example.com/x")
    assert made.tool["httpImpl"]["request"]["auth"] == auth
    assert made.secrets == secrets


def test_a_secret_of_a_host_without_a_name_says_api_once():
    assert from_curl("curl http://127.0.0.1:8090/ -H 'X-Api-Key: abc'").secrets == {"API_KEY": "abc"}
    assert from_curl("curl http://127.0.0.1:8090/ -H 'Authorization: Bearer abc'").secrets == {"API_TOKEN": "abc"}


@each(
    "command",
    [
        "curl 'https://x.example/?api_key=s3cretvalue'",
        "curl 'https://x.example/?q=1&appid=s3cretvalue'",
        "curl -G https://x.example -d access_token=s3cretvalue",
        "curl https://x.example -d client_secret=s3cretvalue -d a=b",
        "curl https://x.example --data-urlencode 'password=s3cretvalue'",
        'curl https://x.example --json \'{"user": {"name": "a", "password": "s3cretvalue"}}\'',
        'curl https://x.example --json \'[{"token": "s3cretvalue"}]\'',
        "curl https://x.example -H 'Authorization: Token s3cretvalue'",
        "curl https://x.example -H 'Authorization: s3cretvalue'",
        "curl https://x.example -H 'X-Auth-Token: s3cretvalue' -H 'X-Secret: s3cretvalue'",
        "curl https://x.example -H 'Ocp-Apim-Subscription-Key: s3cretvalue'",
        "curl https://x.example -b 'a=s3cretvalue'",
        "curl https://x.example -H 'Cookie: a=s3cretvalue'",
        "curl https://me:s3cretvalue@x.example/",
        "curl -u me:s3cretvalue https://x.example",
        'TOKEN=s3cretvalue curl https://x.example -H "Authorization: Bearer $TOKEN"',
    ],
)
def test_credentials_leave_the_tool(command):
    made = from_curl(command)
    assert "s3cretvalue" not in msgspec.json.encode([made.tool, made.slug, made.hosts, made.notes]).decode()
    assert any(value and "s3cretvalue" in value for value in made.secrets.values())


@each(
    "value", ["ghp_0123456789abcdefghij0123456789abcdef", "sk-proj-0123456789abcdefghij", "xoxb-1234567890-abcdef",
              "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"]
)  # fmt: skip
def test_what_looks_like_a_key_is_one_wherever_it_stands(value):
    for command in (
        f"curl 'https://x.example/a?q={value}'",
        f"curl https://x.example/hooks/{value}",
        f'curl https://x.example --json \'{{"text": "{value}"}}\'',
        f"curl https://x.example -H 'X-Thing: {value}'",
    ):
        made = from_curl(command)
        assert value not in msgspec.json.encode([made.tool, made.notes]).decode()
        assert value in made.secrets.values()


def test_a_token_in_the_path():
    made = from_curl(
        "curl https://api.telegram.org/bot123456789:AAF0123456789abcdefghijklmnopqrstuv/sendMessage -d text=hi"
    )
    assert (
        made.tool["httpImpl"]["request"]["urlTemplate"] == "https://api.telegram.org/bot${TELEGRAM_TOKEN}/sendMessage"
    )
    assert made.slug == "post-bot-send-message"


def test_placeholders_are_arguments():
    made = from_curl("curl https://x.example/users/:user_id/{repo}/<item-name>/$REF_NAME?since=$SINCE&token=$TOKEN")
    assert (
        made.tool["httpImpl"]["request"]["urlTemplate"]
        == "https://x.example/users/${user_id}/${repo}/${item_name}/${ref_name}"
    )
    assert made.tool["argSchema"]["required"] == ["user_id", "repo", "item_name", "ref_name"]
    assert made.tool["httpImpl"]["request"]["query"] == {"since": "${since}", "token": "${TOKEN}"}
    assert made.secrets == {"TOKEN": None}


def test_placeholders_in_bodies():
    out = sent(
        """curl https://x.example --json '{"n": $COUNT, "text": "to $NAME", "at": {"x": "${X}"}}'""",
        count=3,
        name="A",
        x="1",
    )
    assert json.loads(out.body) == {"n": 3, "text": "to A", "at": {"x": "1"}}
    # In quotes a dollar is JSON's, unless it is plainly a variable.
    assert schema("""curl https://x.example --json '{"$ref": "$id"}'""")["properties"]["ref"]["default"] == "$id"


def test_queries():
    out = sent("curl 'https://x.example/a?q=a%20b+c&page=2&tag=x&tag=y&flag'")
    assert out.url.target == "/a?q=a%20b%20c&page=2&tag=x&tag=y&flag="
    assert schema("curl 'https://x.example/a?page=2&zip=02139&x=1.5&b=true'")["properties"] == {
        "page": {"type": "integer", "default": 2}, "zip": {"type": "string", "default": "02139"},
        "x": {"type": "number", "default": 1.5}, "b": {"type": "boolean", "default": True},
    }  # fmt: skip
    assert sent("curl -G https://x.example/s --data-urlencode 'q=a&b' -d n=1").url.target == "/s?q=a%26b&n=1"


def test_forms():
    out = sent("curl https://x.example/f -d 'a=1&b=x%20y' -d c=")
    assert (out.method, out.body) == ("POST", b"a=1&b=x%20y&c=")
    assert dict(out.headers)["Content-Type"] == "application/x-www-form-urlencoded"


def test_json_that_nobody_called_json():
    made = from_curl("curl https://x.example -d '{\"a\": 1}'")
    assert made.notes == ["the body is JSON, and is sent as JSON"]
    assert sent("curl https://x.example -d '[1, 2]'").body == b"[1,2]"


def test_other_texts():
    out = sent("curl https://x.example -H 'Content-Type: text/plain' --data-raw 'hello $WHO, ${x}{'", who="you", x="X")
    assert out.body == b"hello you, X{"


def test_options():
    made = request(
        "curl -sSLk --compressed -XPATCH -m 2.5 --retry 3 -o out.json -A me -e http://r.example https://x.example"
    )
    assert made == {
        "method": "PATCH", "urlTemplate": "https://x.example", "followRedirects": True, "timeoutMs": 2500, "retries": 3,
        "headers": {"User-Agent": "me", "Referer": "http://r.example"},
    }  # fmt: skip
    assert request("curl -I https://x.example")["method"] == "HEAD"
    assert request("curl -G -I -d a=1 https://x.example")["method"] == "HEAD"
    assert request("curl --url https://x.example/a --header=X:1")["headers"] == {"X": "1"}
    assert request("curl -da=1 https://x.example")["body"] == {"a": "${a}"}
    assert from_curl("curl -k https://x.example").notes == ["-k is left out: certificates are always checked"]
    assert request("curl -sXPOST -d '' -- https://x.example")["method"] == "POST"
    assert request("curl https://x.example --no-progress-meter --data-raw=-1 -H 'A: -b'")["headers"]["A"] == "-b"
    assert refused("curl -sE cert.pem https://x.example")
    assert "--proxy is left out" in from_curl("curl --proxy p.example https://x.example").notes[0]
    assert request("curl x.example/a")["urlTemplate"] == "https://x.example/a"
    assert request("curl localhost:9000/a")["urlTemplate"] == "http://localhost:9000/a"


def test_files():
    made = from_curl(
        "curl https://x.example -H 'Content-Type: multipart/form-data'"
        " -F 'photo=@/home/me/cat.png;type=image/png;filename=\"k.png\"'"
        " -F 'title=My cat; yes' -F n=3 -F token=sk-123 -F 'notes=<n.txt' -F 'q=@\"a;b.png\"'"
        " --form-string 's=@x;type=y'"
    )
    assert made.tool["httpImpl"]["request"] == {
        "method": "POST",
        "urlTemplate": "https://x.example",
        "multipart": {
            "photo": {"file": "${photo}", "filename": "k.png"},
            "title": "${title}",
            "n": "${n}",
            "token": "${X_TOKEN}",
            "notes": "${notes}",
            "q": {"file": "${q}"},
            "s": "${s}",
        },
        "bodyEncoding": {"photo": {"contentType": "image/png"}},
        "timeoutMs": 60_000,
    }
    schema = made.tool["argSchema"]
    assert schema["required"] == ["photo", "notes", "q"]
    assert "default" not in schema["properties"]["photo"]
    assert [schema["properties"][name]["default"] for name in ("title", "n", "s")] == ["My cat; yes", 3, "@x;type=y"]
    assert made.secrets == {"X_TOKEN": "sk-123"}
    assert made.tool["limits"] == {"maxRequestBytes": 16 * 1024**2}


def test_a_body_that_is_a_file():
    assert request("curl -T a.bin https://x.example/up")["method"] == "PUT"
    made = request("curl --data-binary @a.bin -H 'Content-Type: image/png' https://x.example")
    assert (made["method"], made["bodyFile"], made["headers"]) == ("POST", "${file}", {"Content-Type": "image/png"})


@each(
    ("command", "encoding"),
    [
        ("curl https://x.example", None),
        ("curl https://x.example -H 'Accept: */*'", None),
        ("curl https://x.example -H 'Accept: application/json'", "json"),
        ("curl https://x.example -H 'Accept: text/event-stream'", "sse"),
        ("curl https://x.example --json '{\"stream\": true}'", "sse"),
        ("curl https://x.example -H 'Accept: image/png'", "binary"),
        ("curl https://x.example -H 'Accept: text/csv'", "text"),
    ],
)
def test_how_the_answer_is_read(command, encoding):
    assert from_curl(command).tool["httpImpl"]["response"].get("encoding") == encoding


@each(
    ("command", "why"),
    [
        ("", "begin with curl"),
        ("wget https://x.example", "begin with curl"),
        ("curl -s", "no URL"),
        ("curl https://a.example https://b.example", "two URLs"),
        ("curl https://x.example --next https://y.example", "not supported: --next"),
        ("curl -H", "needs a value"),
        ("curl --frobnicate https://x.example", "not supported: --frobnicate"),
        ("curl -m nan https://x.example", "-m/--max-time: invalid number value: 'nan'"),
        ("curl -F file https://x.example", "name=@path for a file"),
        ("curl -F a=1 -d b=2 https://x.example", "several bodies"),
        ("curl https://x.example -H 'Content-Type: multipart/form-data; boundary=x' --data-raw 'x'", "multipart"),
        ("curl -d @body.json https://x.example", "files are not supported"),
        ("curl -b cookies.txt https://x.example", "files of cookies"),
        ('curl ^"https://x.example^"', "cmd or PowerShell"),
        ("curl https://x.example ^\n -X POST", "cmd or PowerShell"),
        ("curl https://x.example `\n -X POST", "cmd or PowerShell"),
        ("curl https://x.example/$(cat /etc/passwd)", "contains another command"),
        ('curl "https://x.example/`id`"', "contains another command"),
        ("curl 'https://x.example", "never closed"),
        ("curl $'https://x.example", "never closed"),
        ("curl https://$HOST/x", "the host itself"),
        ("curl https://{host}/x", "the host itself"),
        ("curl ftp://x.example", "http:// or https://"),
        ("curl https://x.example/{a,b}", "several URLs"),
        ("curl https://x.example/[1-9]", "several URLs"),
        ("curl -X BREW https://x.example", "a tool can send"),
        ("curl https://x.example --json '{'", "not JSON"),
        ("curl --digest -u a:b https://x.example", "not supported: --digest"),
        ("curl https://x.example -H 'Authorization: AWS4-HMAC-SHA256 Credential=a'", "signature"),
        ("curl https://x.example/\ue000", "characters"),
        ("curl 'https://x.example/a b'", "a space"),
        ('curl https://x.example -d "$NAME=1"', "a name"),
        ("curl " + "x" * 2_000_000, "longer"),
    ],
)
def test_what_is_not_understood(command, why):
    assert why in refused(command)


@each(
    ("command", "why"),
    [
        ("curl -F 'a=@x;type=no type' https://x.example", "contentType"),
        ("curl -H $'X: a\\nEvil: b' https://x.example", "one line"),
    ],
)
def test_what_no_tool_sends_is_refused_when_it_is_stored(command, why):
    made = from_curl(command)

    def check():
        content = read_tool(made.tool, "t", "1")
        tool_to_inspect(http_of(content), content.arg_schema)

    with pytest.raises((InvalidError, TemplateError), match=why):
        check()


def test_words_as_bash_reads_them():
    assert words(r"""curl a\ b 'c d' "e \"f\" \n" $'g\th\x41\u00e4\101' i'j'"k" \
       l # m""") == ["curl", "a b", "c d", 'e "f" \\n', "g\thAäA", "ijk", "l"]
    assert words("curl a\n-s\nrm -rf /") == ["curl", "a", "-s"]
    assert words("curl https://x/a?b=1&c=2 2>/dev/null && rm x") == ["curl", "https://x/a?b=1&c=2"]


@given(st.text(max_size=80))
def test_anything_is_a_tool_or_refused(text):
    for command in (text, f"curl {text}", f"curl https://x.example/{text}", f"curl https://x.example -d '{text}'"):
        try:
            made = from_curl(command)
        except InvalidError:
            continue
        check_slug(made.slug)


def test_a_tool_of_a_command_is_called():
    with Upstream(Reply(headers={"Content-Type": "application/json"}, body=b'{"ok": true}')) as upstream:
        made = from_curl(
            f'curl -u ada:secret1 \'{upstream.url}/v1/notes/:id?full=true\' --json \'{{"text": "a", "n": 1}}\''
        )
        harness = Harness(made.tool["httpImpl"], made.tool["argSchema"], secrets=made.secrets, hosts=allowed(upstream))
        assert harness(id="a/b", full=False, text="hello", n=2) == {"ok": True}
        seen = upstream.seen[0]
        assert (seen.method, seen.target) == ("POST", "/v1/notes/a%2Fb?full=false")
        assert seen.headers["authorization"] == "Basic YWRhOnNlY3JldDE="
        assert json.loads(seen.body) == {"text": "hello", "n": 2}


def test_a_placeholder_is_a_text():
    found = schema("curl 'https://x.example/users/{id}/$CITY/:page/<kind>'")
    assert [one["type"] for one in found["properties"].values()] == ["string"] * len(found["properties"])
    assert {"id", "city"} <= found["properties"].keys()
