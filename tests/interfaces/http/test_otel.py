"""`otel`: what a collector gets, decoded with the official protobuf messages; and that nothing is sent without it."""

import asyncio
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from interfaces.http.matrix import bearer, exchange, served, token_entry, token_of
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from upstream import Reply, Upstream

from onetool.app.telemetry import start_telemetry

TRACE, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = (("x-request-id", "job-7"), ("traceparent", f"00-{TRACE}-{CLIENT_SPAN}-01"))
SECRET = "an-argument-that-must-not-leave"
BUNDLE = "/tools/bundles/01890a5d-ac96-774b-bcce-000000000001"


class Collector:
    """A stand-in for an OTLP collector."""

    def __init__(self):
        self.got = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                got.append((self.path, dict(self.headers), body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        found = []
        for path, _, body in self.got:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def metrics(self):
        found = {}
        for path, _, body in self.got:
            if path == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    found |= {one.name: one for scope in resource.scope_metrics for one in scope.metrics}
        return found

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


def opened(folder, upstream, otel):
    config = {
        "http": {"tokens": [token_entry("edit-1", token_of("edit"), role="edit")]},
        "allowedHosts": [{"host": upstream.url.partition("//")[2], "allowPrivate": True}],
        **({"otel": otel} if otel else {}),
    }
    return served(folder, config)


def work(site, upstream):
    """Make a tool of HTTP, and call it by code."""
    headers = (*bearer(token_of("edit")), *SENT)

    def send(method, path, body):
        answer = asyncio.run(exchange(site, path, method, headers, json.dumps(body).encode()))
        assert answer[0] < 300, answer
        return answer

    upstream.say(Reply(body=b'{"ok": true}'))
    request = {"urlTemplate": f"{upstream.url}/x", "method": "GET"}
    definition = {"type": "http", "httpImpl": {"request": request, "response": {}}, "argSchema": {}}
    send("PUT", BUNDLE, {"slug": "net"})
    send("PUT", f"{BUNDLE}/tools/ping/version/1", definition)
    send("POST", "/run", {"code": f"x = '{SECRET}'\nnet.ping()"})


def attributes(span):
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_collector_gets_the_spans_of_one_trace(tmp_path, collector):
    with Upstream() as upstream:
        headers = {"x-key": "collector-key"}
        app, site = opened(tmp_path / "served", upstream, {"endpoint": collector.url, "headers": headers})
        end = start_telemetry(app)
        with app:
            work(site, upstream)
            end()
        passed = upstream.seen[-1].headers
    spans = {span.name: span for span in collector.spans() if span.trace_id.hex() == TRACE}
    request, run, call = spans["POST /run"], spans["execute_tool run"], spans["execute_tool net.ping"]
    assert (request.parent_span_id.hex(), request.kind) == (CLIENT_SPAN, request.SPAN_KIND_SERVER)
    assert (run.parent_span_id, call.parent_span_id) == (request.span_id, run.span_id)
    for inner, outer in ((run, request), (call, run)):
        assert outer.start_time_unix_nano - 10**7 <= inner.start_time_unix_nano <= inner.end_time_unix_nano
    assert attributes(call)["gen_ai.operation.name"] == "execute_tool"
    assert attributes(call)["gen_ai.tool.name"] == "net.ping"
    assert attributes(request)["onetool.request_id"] == "job-7"
    assert passed["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert {"http.server.request.duration", "onetool.tool.call.duration", "onetool.run.duration"} <= {
        *collector.metrics()
    }
    assert all(headers.get("x-key") == "collector-key" for _, headers, _ in collector.got)
    assert all(SECRET.encode() not in body and b"edit-1" not in body for _, _, body in collector.got)


def test_without_it_no_trace_goes_out(tmp_path):
    with Upstream() as upstream:
        app, site = opened(tmp_path / "served", upstream, None)
        assert start_telemetry(app) is None
        with app:
            work(site, upstream)
        assert "traceparent" not in upstream.seen[-1].headers


def test_a_server_without_it_imports_nothing_for_it(tmp_path):
    code = (
        "import sys; from onetool.app import App; from onetool.app.telemetry import start_telemetry;"
        "import onetool.interfaces.http.serve; app = App.open(sys.argv[1]); start_telemetry(app);"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    (tmp_path / "onetool.yaml").write_text("{}\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "onetool.yaml")], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
