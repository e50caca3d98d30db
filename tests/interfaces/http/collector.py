"""A stand-in for an OTLP collector. It decodes what it gets with the official protobuf messages."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
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

    def spans(self, trace=None):
        """Return what it got, in the order of arrival; only those of one trace, if that is named."""
        found = []
        for path, _, body in self.got:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    found += [span for scope in resource.scope_spans for span in scope.spans]
        return [span for span in found if trace is None or span.trace_id.hex() == trace]

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


def attributes(span):
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
