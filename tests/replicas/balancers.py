"""Real balancers in front of replicas, as people set them up: round robin, no sticky sessions, health by /readyz."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from helpers import until

PLACES = f"{os.environ['PATH']}:/usr/sbin"

HAPROXY = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    timeout tunnel 120s
    option redispatch
    retries 3
    retry-on conn-failure empty-response 503
    http-reuse safe
frontend all
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 200ms fall 1 rise 1
{servers}
"""

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream replicas {{
{servers}
        keepalive 32;
    }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 16m;
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_read_timeout 120s;
            proxy_next_upstream error timeout http_503 non_idempotent;
        }}
    }}
}}
"""


def program(name: str) -> str:
    """Where it is. The test is skipped without it."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"CLUSTER NOT TESTED: {name} is not installed: python -m tests.replicas.install, as root")
    return found


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Balancer:
    """One that runs. `close` ends it."""

    def __init__(self, kind: str, folder: Path, ports: list[int]) -> None:
        self.kind = kind
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir()
        file = folder / f"{kind}.conf"
        if kind == "haproxy":
            servers = "\n".join(f"    server r{port} 127.0.0.1:{port}" for port in ports)
            file.write_text(HAPROXY.format(port=self.port, servers=servers))
            command = [program("haproxy"), "-db", "-f", str(file)]
        else:
            servers = "\n".join(f"        server 127.0.0.1:{port} max_fails=1 fail_timeout=1s;" for port in ports)
            file.write_text(NGINX.format(port=self.port, servers=servers, folder=folder))
            command = [program("nginx"), "-p", str(folder), "-c", str(file), "-g", "user root;"]
        self._log = open(folder / "log", "wb")  # noqa: SIM115 - closed with it
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        until(self._listens)

    def _listens(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
