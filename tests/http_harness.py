"""What the tests of the wire share: a client for one test, a tool against an upstream, and an app around both."""

import asyncio
import ssl
import subprocess
from types import SimpleNamespace

import msgspec

from onetool.core.call import ToolCall
from onetool.core.context import CallContext, current_call
from onetool.core.spec import ToolSpec
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.client import HttpClient, HttpContext
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.http.tool import HttpTool
from onetool.http.url import HttpRequest, parse_url
from onetool.services.secrets import Secrets

PATIENCE = 60


def allowed(*upstreams, private=True):
    return AllowedHosts([HostRule(getattr(one, "netloc", one), private) for one in upstreams])


def get(url, method="GET", headers=(), body=b""):
    return HttpRequest(method, parse_url(url), list(headers), body)


def run(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def fetched(upstream, *requests, client=None, timeout=5.0, max_bytes=1_000_000, hosts=None):
    """The answers, one after another, by one client."""

    async def main():
        used = client or HttpClient()
        many = [one if isinstance(one, HttpRequest) else get(f"{upstream.url}{one}") for one in requests]
        hosts_ = hosts or allowed(upstream)
        return [await used.send(one, hosts_, timeout=timeout, max_bytes=max_bytes) for one in many]

    return run(main())


class Environment:
    """What the app lends to a running tool."""

    def __init__(self, secrets=None):
        self.secrets = Secrets(secrets or {})

    def secret(self, name):
        return self.secrets.get(name)

    def redact(self, value, sent=None):
        return self.secrets.redact_data(value, sent)


class Harness:
    """A tool and all that it reaches."""

    def __init__(self, impl, schema=None, limits=None, secrets=None, hosts=None, client=None):
        self.environment = Environment(secrets)
        self.kept = []
        self.told = []
        self.hosts = hosts
        self.client = client or HttpClient()
        outside = HttpContext(self.client, hosts, self._keep, self.environment.secrets.mask_also)
        self.tool = HttpTool(
            msgspec.convert(impl, HttpImpl), schema or {}, msgspec.convert(limits or {}, ToolLimits), lambda: outside
        )

    def _keep(self, text):
        self.kept.append(text)
        return SimpleNamespace(handle="0" * 32)

    async def call(self, **args):
        spec = ToolSpec(name="t", description="")
        current_call.set(
            CallContext(
                spec=spec,
                call=ToolCall("1", "t", args),
                environment=self.environment,
                progress=lambda *said: self.told.append(said),
            )
        )
        return await self.tool(**args)

    def __call__(self, **args):
        return run(self.call(**args))


def harness(upstream, request=None, response=None, path="/x", hosts=None, **more):
    impl = {"request": {"urlTemplate": f"{upstream.url}{path}", **(request or {})}, "response": response or {}}
    return Harness(impl, hosts=hosts or allowed(upstream), **more)


def certificate(folder, name="localhost"):
    """Of its own maker: what a server needs, and a way to trust it."""
    key, crt = folder / f"{name}.key", folder / f"{name}.crt"
    names = f"subjectAltName=DNS:{name},IP:127.0.0.1"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    where = ["-keyout", str(key), "-out", str(crt), "-subj", f"/CN={name}", "-addext", names]
    subprocess.run(["openssl", "req", "-x509", *kind, *where], check=True, capture_output=True, timeout=PATIENCE)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(crt, key)
    return server, lambda: ssl.create_default_context(cafile=str(crt))
