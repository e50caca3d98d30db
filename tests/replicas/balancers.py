"""Real balancers in front of replicas, with the configs of deploy/."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from helpers import until
from postgres import free_port

PLACES = f"{os.environ['PATH']}:/usr/sbin"

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
# Around the file for /etc/nginx/conf.d/, what Debian's nginx.conf has.
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
{site}
}}
"""


def haproxy_config(port: int, ports: list[int]) -> str:
    """The one that we ship, with these addresses."""
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8080", f"bind 127.0.0.1:{port}")
    return _with_servers(text, ports, "    server {0} {0}:8765", "    server r{1} 127.0.0.1:{1}")


def nginx_config(port: int, ports: list[int], folder: Path) -> str:
    text = (DEPLOY / "nginx.conf").read_text().replace("listen 8080;", f"listen 127.0.0.1:{port};")
    options = "max_fails=1 fail_timeout=1s;"
    site = _with_servers(text, ports, f"    server {{0}}:8765 {options}", f"    server 127.0.0.1:{{1}} {options}")
    return NGINX.format(folder=folder, site=site)


def _with_servers(text: str, ports: list[int], theirs: str, ours: str) -> str:
    """The lines of three replicas become those of the real ones."""
    lines = [theirs.format(f"replica-{number}") for number in (1, 2, 3)]
    assert all(line in text for line in lines)
    text = text.replace(lines[0], "\n".join(ours.format("", port) for port in ports))
    return "\n".join(line for line in text.splitlines() if line not in lines[1:]) + "\n"


def program(name: str) -> str:
    """Where it is. The test is skipped without it."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"CLUSTER NOT TESTED: {name} is not installed: python -m tests.replicas.install, as root")
    return found


class Balancer:
    """One that runs. `close` ends it."""

    def __init__(self, kind: str, folder: Path, ports: list[int]) -> None:
        self.kind = kind
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir()
        file = folder / f"{kind}.conf"
        if kind == "haproxy":
            file.write_text(haproxy_config(self.port, ports))
            command = [program("haproxy"), "-db", "-f", str(file)]
        else:
            file.write_text(nginx_config(self.port, ports, folder))
            command = [program("nginx"), "-p", str(folder), "-c", str(file)]
            if os.geteuid() == 0:
                command += ["-g", "user root;"]
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
