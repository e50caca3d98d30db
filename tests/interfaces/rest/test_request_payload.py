"""Bodies: strict JSON, and nothing that a client sends gets it down."""

import json

from helpers import each
from interfaces.rest.served import BUILT_IN, problem

ECHO = f"/tools/bundles/{BUILT_IN}/tools/echo/version/1/invoke"


@each(
    ("body", "says"),
    [
        (b"{", "line 1 column 2"),
        (b'{"args": {}} x', "Extra data"),
        (b'{"args": {"a": 1, "a": 2}}', "'a' is duplicated"),
        (b'{"args": {"a": NaN}}', "NaN"),
        (b'{"args": {"a": -Infinity}}', "-Infinity"),
        (b'{"args": {"a": 1e999}}', "out of range"),
        (b'\xef\xbb\xbf{"args": {}}', "byte order mark"),
        (b'{"args": {"a": "\xff"}}', "byte 16 is not UTF-8"),
        ('{"args": {}}'.encode("utf-16"), "not UTF-8"),
        (b'{"args": {"a": "\\ud800"}}', "surrogate"),
        (b'{"args": {"\\uDC00": 1}}', "surrogate"),
        (b'{"args": ' + b"[" * 100_000, "nested too deep"),
        (b'{"args": {"a": ' + b"9" * 1001 + b"}}", "more than 1,000 digits"),
        (b'{"args": {"a": [' + b"0," * 500_000 + b"0]}}", "more than 500,000 parts"),
        (b"{'args': {}}", "property name"),
        (b'{"args": {"a": "\n"}}', "control character"),
        (b"\0", "line 1"),
        (b" ", "line 1"),
    ],
)
def test_what_is_no_json_is_told_why(api, body, says):
    for method, path in (("POST", ECHO), ("PUT", f"/tools/bundles/{api.new_id()}"), ("PATCH", api.bundle())):
        found = problem(api.ask(method, path, content=body), 400, "bad_json")
        assert says in found["detail"]


def test_numbers_and_texts_of_any_kind_come_back_as_they_were(api):
    args = {
        "big": 10**400,
        "small": -(10**30),
        "float": 0.1,
        "text": "é😀\0\u2028",
        "deep": json.loads("[" * 200 + "]" * 200),
    }
    assert api.call("echo", args).json() == {"ok": True, "value": args}


def test_a_large_body_is_read_too(api):
    args = {"text": "x" * 900_000}
    assert api.call("echo", args).json()["value"] == args
    twice = b'{"args": {"x": "' + b"x" * 100_000 + b'", "a": 1, "a": 2}}'
    problem(api.ask("POST", ECHO, content=twice), 400, "bad_json")


def test_no_body_is_none(api):
    assert api.ask("POST", ECHO).json() == {"ok": True, "value": {}}
    problem(api.ask("PUT", f"/tools/bundles/{api.new_id()}"), 400, "bad_json")


@each(
    ("kind", "status"),
    [
        (None, 415),
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json;charset="utf-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("application/jsonp", 415),
        ("application/merge-patch+json", 415),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
def test_a_body_is_json_and_says_so(api, kind, status):
    headers = [] if kind is None else [("Content-Type", kind)]
    for body in (b'{"args": {}}', b""):
        reply = api.raw("POST", ECHO, body, headers)
        assert reply.status_code == status
        if status == 415:
            assert "Content-Type: application/json" in problem(reply, 415, "unsupported_media_type")["detail"]


@each("body", ["[]", "null", "1", '""', '{"args": null}', '{"args": []}', '{"arg": {}}', '{"a": 1}'])
def test_a_call_is_an_object_with_args(api, body):
    assert problem(api.ask("POST", ECHO, content=body), 400, "invalid")["in"] == "body"


def test_more_than_the_site_takes_is_413(api):
    for body in (b"x" * (1024**2 + 1), iter([b"x" * 600_000] * 2)):  # also in chunks, whose length nobody knows
        reply = api.ask("POST", ECHO, content=body)
        assert "1 MiB" in problem(reply, 413, "too_large")["detail"]
