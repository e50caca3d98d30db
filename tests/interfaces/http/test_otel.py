"""`otel`: what a collector gets, decoded with the official protobuf messages; and that nothing is sent without it."""

import asyncio
import json
import subprocess
import sys
from itertools import pairwise

import pytest
from helpers import cli
from interfaces.http.collector import attributes
from interfaces.http.matrix import bearer, exchange, served, token_entry, token_of
from msgspec.structs import replace
from upstream import Reply, Upstream

from onetool.app.telemetry import start_telemetry
from onetool.core.trace import Span, begin_trace
from onetool.services.otel import OtelExporter

TRACE, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = (("x-request-id", "job-7"), ("traceparent", f"00-{TRACE}-{CLIENT_SPAN}-01"))
SECRET = "an-argument-that-must-not-leave"
BUNDLE = "/tools/bundles/01890a5d-ac96-774b-bcce-000000000001"


def opened(folder, upstream, otel, **more):
    config = {
        "http": {"tokens": [token_entry("edit-1", token_of("edit"), role="edit")]},
        "allowedHosts": [{"host": upstream.url.partition("//")[2], "allowPrivate": True}],
        **({"otel": otel} if otel else {}),
        **more,
    }
    return served(folder, config)


def send(site, method, path, body, sent=SENT):
    headers = (*bearer(token_of("edit")), *sent)
    answer = asyncio.run(exchange(site, path, method, headers, json.dumps(body).encode()))
    assert answer[0] < 300, answer
    return answer


def work(site, upstream, request=None, sent=SENT, **args):
    """Make a tool of HTTP, and call it by code."""
    request = {"urlTemplate": f"{upstream.url}/${{word}}", "method": "GET", **(request or {})}
    properties = {name: {"type": "string"} for name in ("word", "host")}
    schema = {"type": "object", "properties": properties}
    definition = {"type": "http", "httpImpl": {"request": request, "response": {}}, "argSchema": schema}
    send(site, "PUT", BUNDLE, {"slug": "net"}, sent)
    send(site, "PUT", f"{BUNDLE}/tools/ping/version/1", definition, sent)
    given = ", ".join(f"{name}={value!r}" for name, value in {"word": SECRET, **args}.items())
    code = f"try:\n    net.ping({given})\nexcept Exception:\n    pass"
    send(site, "POST", "/run", {"code": code}, sent)


def test_a_collector_gets_the_spans_of_one_trace(tmp_path, collector):
    with Upstream(Reply(body=b'{"ok": true}')) as upstream:
        headers = {"x-key": "collector-key"}
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url, "headers": headers})
        end = start_telemetry(app.config, app.runtime.recorder)
        with app:
            work(site, upstream)
            end()
        passed = upstream.seen[-1].headers
        host, port = upstream.url.removeprefix("http://").split(":")
    spans = {span.name: span for span in collector.spans(TRACE)}
    names = ("POST /run", "execute_tool run", "sandbox", "execute_tool net.ping", "GET")
    path = request, _, sandbox, call, sent = [spans[name] for name in names]
    assert request.parent_span_id.hex() == CLIENT_SPAN
    for inner, outer in pairwise(reversed(path)):
        assert inner.parent_span_id == outer.span_id
        assert outer.start_time_unix_nano - 10**7 <= inner.start_time_unix_nano <= inner.end_time_unix_nano
    assert [span.kind for span in path] == [
        request.SPAN_KIND_SERVER,
        *[request.SPAN_KIND_INTERNAL] * 3,
        request.SPAN_KIND_CLIENT,
    ]
    assert attributes(call)["gen_ai.operation.name"] == "execute_tool"
    assert attributes(call)["gen_ai.tool.name"] == "net.ping"
    assert attributes(request)["onetool.request_id"] == "job-7"
    assert attributes(sandbox) == {}
    assert attributes(sent) == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.address": host,
        "server.port": int(port),
    }
    assert passed["traceparent"] == f"00-{TRACE}-{sent.span_id.hex()}-01"
    assert {"http.server.request.duration", "onetool.tool.call.duration", "onetool.run.duration"} <= {
        *collector.metrics()
    }
    assert all(headers.get("x-key") == "collector-key" for _, headers, _ in collector.got)
    assert all(SECRET.encode() not in body and b"edit-1" not in body for _, _, body in collector.got)


def test_each_try_and_each_hop_of_an_http_tool_is_a_span(tmp_path, collector):
    """The trace goes to the host that the tool names, and no other host is told to the collector."""
    with Upstream() as upstream, Upstream(Reply(404, body=b"{}")) as other:
        away = Reply(302, {"Location": f"{other.url}/{SECRET}"})
        upstream.say(Reply(503), away)
        hosts = [{"host": one.url.partition("//")[2], "allowPrivate": True} for one in (upstream, other)]
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url}, allowedHosts=hosts)
        end = start_telemetry(app.config, app.runtime.recorder)
        with app:
            work(site, upstream, {"retries": 1, "followRedirects": True})
            end()
        passed = [one.headers.get("traceparent") for one in (*upstream.seen, *other.seen)]
        port = int(upstream.url.rpartition(":")[2])
    sent = [span for span in collector.spans(TRACE) if span.name == "GET"]
    (call,) = [span for span in collector.spans(TRACE) if span.name == "execute_tool net.ping"]
    assert {span.parent_span_id for span in sent} == {call.span_id}
    told = [attributes(span) for span in sent]
    assert [one["http.response.status_code"] for one in told] == [503, 302, 404]
    assert [one.get("error.type") for one in told] == ["503", None, "404"]
    assert [one.get("http.request.resend_count") for one in told] == [None, 1, 2]
    assert [one.get("server.port") for one in told] == [port, port, None]
    assert passed == [*(f"00-{TRACE}-{span.span_id.hex()}-01" for span in sent[:2]), None]
    assert all(SECRET.encode() not in body for _, _, body in collector.got)


def test_a_host_that_an_argument_names_is_not_told(tmp_path, collector):
    with Upstream() as upstream:
        host, port = upstream.url.removeprefix("http://").split(":")
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url})
        end = start_telemetry(app.config, app.runtime.recorder)
        with app:
            request = {"urlTemplate": f"http://${{host}}:{port}/"}
            work(site, upstream, request, host=host)
            refused = f"try:\n    net.ping(host='{SECRET}.example.com')\nexcept Exception:\n    pass"
            send(site, "POST", "/run", {"code": refused})
            end()
    first, second = [attributes(span) for span in collector.spans(TRACE) if span.name == "GET"]
    assert first == {"http.request.method": "GET", "http.response.status_code": 200}
    assert second == {"http.request.method": "GET", "error.type": "UnmetNeedError"}
    assert all(SECRET.encode() not in body for _, _, body in collector.got)


def test_code_that_fails_ends_the_span_of_the_sandbox(tmp_path, collector):
    with Upstream() as upstream:
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url})
        end = start_telemetry(app.config, app.runtime.recorder)
        with app:
            send(site, "POST", "/run", {"code": f"raise ValueError('{SECRET}')"})
            end()
    spans = {span.name: span for span in collector.spans(TRACE)}
    assert attributes(spans["sandbox"]) == {"error.type": "CodeError"}
    assert spans["sandbox"].status.code == spans["sandbox"].status.STATUS_CODE_ERROR
    assert all(SECRET.encode() not in body for _, _, body in collector.got)


def test_nothing_is_sent_of_a_trace_that_the_client_does_not_record(tmp_path, collector):
    with Upstream() as upstream:
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url})
        end = start_telemetry(app.config, app.runtime.recorder)
        with app:
            work(site, upstream, sent=[("traceparent", f"00-{TRACE}-{CLIENT_SPAN}-00")])
            end()
        assert upstream.seen[-1].headers["traceparent"].endswith("-00")
    assert collector.spans() == []


def test_without_it_no_trace_goes_out(tmp_path):
    with Upstream() as upstream:
        app, site = opened(tmp_path / "served", upstream, None)
        assert start_telemetry(app.config, app.runtime.recorder) is None
        with app:
            work(site, upstream)
        assert "traceparent" not in upstream.seen[-1].headers


def test_a_server_without_it_imports_nothing_for_it(tmp_path):
    code = (
        "import sys; from onetool.app import App; from onetool.app.telemetry import start_telemetry;"
        "import onetool.interfaces.http.serve; app = App.open(sys.argv[1]);"
        "start_telemetry(app.config, app.runtime.recorder);"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    (tmp_path / "onetool.yaml").write_text("{}\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "onetool.yaml")], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_names_of_any_length_and_of_odd_characters_cost_no_other_span(collector):
    exporter = OtelExporter(collector.url, {}, "onetool")
    for name in ("tools/call \ud800", "x" * 100_000, "plain"):
        with Span(name, begin_trace(), exporter.observe, CLIENT_SPAN) as span:
            span.trace = replace(span.trace, flags="01")
            span.attributes["gen_ai.tool.name"] = name
    exporter.close()
    names = ["tools/call \ufffd", "x" * 256, "plain"]
    assert [span.name for span in collector.spans()] == names
    assert [attributes(span)["gen_ai.tool.name"] for span in collector.spans()] == names


HIDES = """
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hides())
"""


@pytest.mark.parametrize("command", [("check",), ("serve", "--port", "0")])
def test_a_missing_package_is_told_with_what_to_install(tmp_path, command):
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    (tmp_path / "onetool.yaml").write_text("otel: http://127.0.0.1:4318\n")
    env = {"PYTHONPATH": str(tmp_path), "ONETOOL_HOME": str(tmp_path / "home")}
    done = cli("--config", str(tmp_path / "onetool.yaml"), *command, cwd=tmp_path, env=env, cold=True)
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "otel needs a package that is not installed: opentelemetry.sdk" in told
    assert "onetool-layer[otel]" in told.replace('\\"', '"')
