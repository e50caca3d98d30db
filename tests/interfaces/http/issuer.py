"""An issuer of JWTs with real keys, and a real HTTP server that publishes them.

    with Issuer() as issuer: token = issuer.token(sub="ann")

What it answers can be changed while it runs: `issuer.keys`, `issuer.metadata`, `issuer.answer`. `issuer.asked` are the
paths that were asked for.
"""

import json
import time
from base64 import urlsafe_b64encode
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

AUDIENCE = "onetool"
PATIENCE = 60  # seconds that it holds an answer back at most
KINDS = {
    "RSA": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm, "RS256"),
    "weak": (lambda: rsa.generate_private_key(65537, 1024), RSAAlgorithm, "RS256"),
    "EC": (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm, "ES256"),
    "P-384": (lambda: ec.generate_private_key(ec.SECP384R1()), ECAlgorithm, "ES384"),
    "OKP": (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm, "EdDSA"),
}


class Key:
    def __init__(self, kind, name):
        make, self._family, self.algorithm = KINDS[kind]
        self.private, self.kid = make(), name

    def jwk(self, **more):
        public = self._family.to_jwk(self.private.public_key(), as_dict=True)
        public.pop("key_ops", None)
        return {**public, "kid": self.kid, **more}

    def sign(self, data, algorithm=None):
        return get_default_algorithms()[algorithm or self.algorithm].sign(data, self.private)


@cache
def key(kind, name="one"):
    """RSA keys take a while to make."""
    return Key(kind, name)


def encoded(part):
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(data).rstrip(b"=")


def signed(header, payload, sign):
    """Whatever it is: `header` and `payload` are data, or bytes as they stand."""
    data = encoded(header) + b"." + encoded(payload)
    return data + b"." + encoded(sign(data))


class Issuer:
    def __init__(self):
        self.key = key("RSA")
        self.keys = [self.key.jwk()]
        self.asked = []
        self.answer = None  # (status, headers, body) of every answer
        self.may_answer = Event()  # cleared: it takes requests, and answers when this is set
        self.may_answer.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.jwks = f"{self.url}/jwks.json"
        self.metadata = {
            "/.well-known/oauth-authorization-server": {"issuer": self.url, "jwks_uri": self.jwks},
        }

    def __enter__(self):
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def claims(self, **claims):
        now = time.time()
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 600, "iat": now, "scope": "tools:call"}
        return {name: value for name, value in {**usual, **claims}.items() if value is not None}

    def token(self, key=None, header=None, payload=None, **claims):
        key = key or self.key
        usual = {"alg": key.algorithm, "kid": key.kid, "typ": "at+jwt"}
        head = {name: value for name, value in {**usual, **(header or {})}.items() if value is not None}
        algorithm = head.get("alg") if head.get("alg") in ("RS256", "RS512", "PS256") else None
        body = self.claims(**claims) if payload is None else payload
        return signed(head, body, lambda data: key.sign(data, algorithm))

    def _handler(issuer):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                issuer.asked.append(self.path)
                issuer.may_answer.wait(PATIENCE)
                found = {"keys": issuer.keys} if self.path == "/jwks.json" else issuer.metadata.get(self.path)
                status, headers, body = 200 if found else 404, {}, json.dumps(found).encode()
                if issuer.answer is not None:
                    status, headers, body = issuer.answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nobody reads it."""

        return Handler
