"""`onetool serve` as its users run it: it says where it is, refuses what would be unsafe, and stops cleanly."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import cli, until

STAND_IN = Path(__file__).with_name("stand_in.py")
TOKEN = "sesame-token-0123456789"
WITH_TOKEN = {"http": {"token": "${ONETOOL_TOKEN}"}}


def refused(*args, cwd, config=None):
    """Run a server that should not start; gives (exit code, what it said)."""
    if config is not None:
        (cwd / "onetool.yaml").write_text(json.dumps(config))
        args = (*args, "--config", "onetool.yaml")
    done = cli("serve", *args, cwd=cwd)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


# It says what to do next


def test_it_says_where_it_is_and_what_to_try(serve):
    server = serve()
    url = f"http://127.0.0.1:{server.port}"
    assert server.port != 0
    assert server.greeting.startswith(f"OneTool listens on {url} with ")
    assert f"claude mcp add --transport http onetool {url}/mcp\n" in server.greeting
    assert f'{{"mcpServers": {{"onetool": {{"type": "http", "url": "{url}/mcp"}}}}}}' in server.greeting
    assert f"  {url}/openapi.json\n" in server.greeting
    assert f"Open the page in a browser:\n  {url}/\n" in server.greeting
    assert server.ask("/healthz").json["status"] == "ok"


def test_behind_a_balancer_clients_are_told_its_address(serve):
    server = serve(config={"http": {"url": "https://tools.example.com/", "hosts": ["127.0.0.1"], "token": TOKEN}})
    own, url = f"http://127.0.0.1:{server.port}", "https://tools.example.com"
    assert server.greeting.startswith(f"OneTool listens on {own} with ")
    assert f"Clients reach it at {url}, as http.url says.\n" in server.greeting
    assert server.greeting.count(own) == 1
    assert f"onetool {url}/mcp --header" in server.greeting
    assert server.ask("/status", headers=[("Authorization", f"Bearer {TOKEN}")]).json["url"] == url
    assert f"onetool {url}/mcp" in server.ask("/").body.decode()


def test_with_a_token_it_shows_how_to_send_it_and_never_the_token(serve):
    server = serve(config=WITH_TOKEN, env={"ONETOOL_TOKEN": TOKEN})
    assert "--header 'Authorization: Bearer ${ONETOOL_TOKEN}'" in server.greeting
    assert '"headers": {"Authorization": "Bearer ${ONETOOL_TOKEN}"}' in server.greeting
    page = server.ask("/", headers=[("Authorization", f"Bearer {TOKEN}")]).body.decode()
    for text in (server.greeting, page, server.log_file.read_text()):
        assert TOKEN not in text
    assert "$ONETOOL_TOKEN" in page


def test_a_token_that_stands_in_the_config_is_not_shown_either(serve):
    server = serve(config={"http": {"token": TOKEN}})
    assert TOKEN not in server.greeting
    assert "Bearer $ONETOOL_TOKEN" in server.greeting


@pytest.mark.long
@pytest.mark.parametrize("args", [(), ("--menu", "search"), ("--menu", "direct")])
def test_the_first_call_that_it_suggests_works(serve, args):
    for config, env in ((None, {}), (WITH_TOKEN, {"ONETOOL_TOKEN": TOKEN})):
        server = serve(*args, config=config, env=env, real=True)
        done = typed(first_call(server), env)
        assert "iso" in json.loads(done.stdout), done


def test_the_first_call_is_one_line_without_a_header_but_that_of_the_token(serve):
    assert first_call(server := serve()) == f"curl -X POST http://127.0.0.1:{server.port}/call/time.now"
    call = first_call(serve(config=WITH_TOKEN, env={"ONETOOL_TOKEN": TOKEN}))
    assert call.endswith('/call/time.now -H "Authorization: Bearer $ONETOOL_TOKEN"')


def test_where_time_may_not_be_asked_for_the_first_call_is_another_one_that_works(serve):
    server = serve("--tool-allow", "shell.pwd", real=True)
    assert isinstance(json.loads(typed(first_call(server)).stdout), str)
    server = serve("--tool-allow", "tools.echo", real=True)
    assert [one["slug"] for one in json.loads(typed(first_call(server)).stdout)["tools"]] == ["echo"]


def first_call(server):
    """All that the server says after its last heading: one line."""
    (line,) = server.greeting.split("Try a first call:\n")[1].strip().split("\n")
    return line


def typed(line, env=None):
    env = {**os.environ, **(env or {})}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30, check=False, env=env)


def test_the_menu_reaches_the_mcp_side(serve):
    server = serve("--menu", "direct")
    assert server.ask("/mcp").json["menu"] == "direct"


def test_it_serves_though_nobody_reads_what_it_says(tmp_path):
    """Its standard output is closed, and its standard error a pipe that is never emptied."""
    port = free_port()
    gone, out = os.pipe()
    os.close(gone)
    with subprocess.Popen(
        [sys.executable, STAND_IN, "serve", "--port", str(port)], cwd=tmp_path, stdout=out, stderr=subprocess.PIPE
    ) as process:
        os.close(out)
        try:
            until(lambda: health(port))
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                for _ in range(1000):  # a pipe takes 64 KiB: some 300 lines
                    client.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
                    received = b""
                    while not received.endswith(b"}"):
                        received += client.recv(4096)
        finally:
            process.terminate()
        assert process.wait(10) == 0


def health(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            return client.recv(4096)
    except ConnectionError:
        return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# Where it listens


def test_the_config_says_where_and_options_say_it_better(serve):
    port = free_port()
    server = serve("--host", "localhost", port=port, config={"http": {"host": "127.0.0.1", "port": 1}})
    assert (server.host, server.port) == ("localhost", port)
    assert server.ask("/healthz", host=f"localhost:{port}").status == 200


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6(serve):
    server = serve("--host", "::1")
    assert f"http://[::1]:{server.port}/mcp" in server.greeting
    for host in (f"[::1]:{server.port}", f"[0:0:0:0:0:0:0:1]:{server.port}", f"localhost:{server.port}", "[::1]"):
        assert server.ask("/healthz", host=host).status == 200, host
    for host in ("[::2]", "[::1", f"::1:{server.port}"):
        assert server.ask("/healthz", host=host).status == 421, host
    for origin, status in ((f"http://[::1]:{server.port}", 200), ("http://[::1]:3000", 403), ("http://[::2]", 403)):
        assert server.ask("/mcp", headers=[("Origin", origin)], host=f"[::1]:{server.port}").status == status, origin


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_localhost_is_both(serve):
    server = serve("--host", "localhost")
    found = {str(one[4][0]) for one in socket.getaddrinfo("localhost", server.port, type=socket.SOCK_STREAM)}
    for address in found:
        with socket.create_connection((address, server.port), 5) as client:
            client.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"


def test_with_a_short_token_only_this_machine_is_served(serve, tmp_path):
    config = {"http": {"token": "only-15-letters"}}
    code, said = refused("--host", "0.0.0.0", "--port", "0", cwd=tmp_path, config=config)
    assert code == 2
    assert "http.token: " in said
    assert "at least 16 characters" in said
    assert "openssl rand -hex 32" in said
    assert "only-15-letters" not in said
    serve(config=config)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", socket.gethostname()])
def test_without_a_token_only_this_machine_is_served(host, tmp_path):
    try:
        addresses = {str(one[4][0]) for one in socket.getaddrinfo(host, 0)}
    except OSError:
        pytest.skip("this machine does not know its own name")
    if all(address.startswith("127.") or address == "::1" for address in addresses):
        pytest.skip("that is this machine only")
    code, said = refused("--host", host, "--port", "0", cwd=tmp_path)
    assert code == 2
    assert "http.token" in said
    assert "onetool tokens add NAME" in said
    assert "needs a token" in said


def test_the_config_can_ask_for_the_same_and_is_refused_by_name(tmp_path):
    code, said = refused("--port", "0", cwd=tmp_path, config={"http": {"host": "0.0.0.0"}})
    assert code == 2
    assert "onetool.yaml: http.token: a server on 0.0.0.0 can be reached from other machines" in said


def test_with_a_token_it_listens_everywhere(serve):
    server = serve("--host", "0.0.0.0", config=WITH_TOKEN, env={"ONETOOL_TOKEN": TOKEN})
    expected = f"OneTool listens on http://0.0.0.0:{server.port} (all addresses of this machine) with "
    assert server.greeting.startswith(expected)
    assert f"onetool http://127.0.0.1:{server.port}/mcp" in server.greeting  # an address that can be used
    bearer = [("Authorization", f"Bearer {TOKEN}")]
    for host, status in (
        (f"127.0.0.1:{server.port}", 200),
        ("localhost", 200),
        (f"0.0.0.0:{server.port}", 421),
        (f"127.0.0.2:{server.port}", 421),
        ("evil.example", 421),
    ):
        assert server.ask("/mcp", headers=bearer, host=host).status == status, host
    server.host = "127.0.0.2"  # another address of this machine: what was really connected to is not a rebound name
    assert server.ask("/mcp", headers=bearer, host=f"127.0.0.2:{server.port}").status == 200


def test_a_port_in_use_is_one_clear_line(serve, tmp_path):
    port = serve().port
    code, said = refused("--port", str(port), cwd=tmp_path)
    assert code == 1
    assert said == (
        f"Error: 127.0.0.1:{port} is in use by another program, perhaps by an `onetool serve` that runs already; "
        "choose another port: --port N (0: the system chooses)\n"
    )


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--host", "no-such-host.invalid"], 1, "Error: the host 'no-such-host.invalid' can't be used: "),
        (["--host", "a..b"], 1, "Error: the host 'a..b' can't be used: "),
        (["--host", ""], 2, "must not be empty"),
        (["--port", "65536"], 2, "65536"),
        (["--port", "x"], 2, "'x'"),
        (["--menu", "all"], 2, "direct"),
    ],
)
def test_what_can_not_be_used_is_told_in_a_line(args, code, words, tmp_path):
    got, said = refused(*args, cwd=tmp_path)
    assert (got, words in said) == (code, True), said
    assert len(said.splitlines()) == (1 if code == 1 else 4)


def test_an_address_of_another_machine(tmp_path):
    config = {"http": {"token": TOKEN, "host": "192.0.2.1"}}
    code, said = refused(cwd=tmp_path, config=config)
    assert (code, said) == (1, "Error: this machine has no address 192.0.2.1; see --host and http.host\n")


# Starting costs what it must


def test_what_a_server_needs_is_loaded_by_nothing_else(tmp_path):
    code = "import sys, onetool.interfaces.cli.serve; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not {"asyncio", "uvicorn", "uvloop", "httptools", "socket", "yaml"} & set(done.stdout.split())


def modules_of_a_server(tmp_path):
    """What a server has loaded that nobody has asked anything yet."""
    code = """
import sys
from onetool import App
from onetool.config import find
from onetool.interfaces.http import serve
from onetool.interfaces.mcp.http import McpHttpApp
with App.open(find(None)) as app:
    address = serve.bind_address(app, "127.0.0.1", 0)
    serve.build_site(app, address, McpHttpApp(app), lambda scope: "")
    serve._warm_bundles(app)
    app.runtime.warm()
    print(*sys.modules)
for socket in address.sockets: socket.close()
"""
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_an_idle_server_has_not_loaded_what_its_first_requests_may_need(tmp_path):
    loaded = modules_of_a_server(tmp_path)
    assert not {"jsonschema_rs", "yaml", "html", "ctypes", "pydantic", "mcp"} & loaded
    assert not {f"onetool.{name}" for name in ("interfaces.rest.app", "sources.bundles.service", "http.tool")} & loaded


def test_with_bundles_a_server_loads_what_shows_them(tmp_path):
    (tmp_path / ".onetool" / "bundles").mkdir(parents=True)
    assert {"onetool.interfaces.rest.app", "onetool.sources.bundles.service"} <= modules_of_a_server(tmp_path)


# Stopping


def stopped(server, number=signal.SIGTERM):
    """The exit code."""
    code = server.stop(number)
    assert "Traceback" not in server.log_file.read_text()
    return code


def asked(server, path):
    """A connection on which something was asked."""
    client = server.connect()
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
    server.wait_begun()
    return client


def lets_nobody_in(server):
    try:
        server.connect().close()
    except ConnectionError:
        return True
    return False


FOR_EVER = {"shutdown_timeout_s": 10**6}  # who waits for requests under way waits for ever


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_idle_server_stops_at_once(serve, number, code):
    server = serve(limits=FOR_EVER)
    with server.connect(), server.connect() as half:  # a silent one, and one in the middle of a head, hold nobody up
        half.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert server.ask("/healthz").status == 200
        assert stopped(server, number) == code


def test_requests_under_way_are_finished_and_nobody_new_is_let_in(serve):
    server = serve(limits=FOR_EVER)
    with asked(server, "/mcp?file=gate") as client:
        server.process.send_signal(signal.SIGTERM)
        until(lambda: lets_nobody_in(server))
        (server.folder / "gate").touch()
        reply = server.read(client)
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert stopped(server) == 0


def test_streams_are_told_to_end(serve):
    server = serve(limits=FOR_EVER)
    with asked(server, "/mcp?stream") as client:
        assert stopped(server) == 0
        received = b""
        while piece := client.recv(65536):
            received += piece
    assert received.endswith(b"data: end\n\n\r\n0\r\n\r\n")


def test_what_takes_too_long_is_told_that_the_server_stops(serve):
    server = serve(limits={"shutdown_timeout_s": 0.3})
    with asked(server, "/mcp?file=never") as client:
        assert stopped(server) == 0
        reply = server.read(client)
    assert (reply.status, reply.code) == (503, "stopping")
    assert [line["status"] for line in server.requests()] == [503]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_asks_twice_does_not_have_to_wait(serve, number):
    server = serve(limits=FOR_EVER)
    with asked(server, "/mcp?file=never"):
        server.process.send_signal(number)
        until(lambda: lets_nobody_in(server))
        assert stopped(server, number) == (0 if number == signal.SIGTERM else 130)


def test_a_client_that_does_not_read_does_not_keep_it_from_stopping(serve):
    server = serve(limits={"shutdown_timeout_s": 0.3})
    with asked(server, "/mcp?flood"):
        assert stopped(server) == 0


def test_no_worker_is_left(serve):
    pytest.importorskip("onetool.interfaces.mcp.http")
    server = serve(real=True)
    call = server.greeting[server.greeting.index("curl ") :].replace("time.now()", "while True: pass")
    with subprocess.Popen(["bash", "-c", call], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        children = until(lambda: children_of(server.process.pid))
        assert stopped(server) == 0
        client.wait(60)
    until(lambda: not any(map(runs, children)))


def children_of(pid):
    """Of all its threads: the kernel notes which one started them."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found += file.read_text().split()
    return found


def runs(pid):
    """And does not merely wait for somebody to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_signal_while_it_starts_ends_it_too(tmp_path):
    for wait in (0.15, 0.3, 0.45):
        with subprocess.Popen(
            [sys.executable, STAND_IN, "serve", "--port", "0"], cwd=tmp_path, stdout=-1, stderr=-1, text=True
        ) as process:
            time.sleep(wait)
            process.terminate()
            _, said = process.communicate(timeout=20)
        assert process.returncode in (0, -signal.SIGTERM)  # the latter: so early that nothing of ours had run
        assert "Traceback" not in said


# SIGHUP


def test_a_hang_up_reads_the_config_again(serve):
    tool = {"name": "one", "description": "d", "type": "function", "handler": "one",
            "parameters": {"type": "object", "properties": {}},
            "implementation": {"type": "mock", "mock_response": 1}}  # fmt: skip
    server = serve(config={"http": {"token": TOKEN}})
    assert server.ask("/mcp").status == 401
    (server.folder / "onetool.yaml").write_text(json.dumps({"http": {"max_body_mb": 1}, "tools": [tool]}))
    server.process.send_signal(signal.SIGHUP)
    server.log(wait_for="Reloaded")
    assert server.ask("/mcp").status == 200
    assert server.ask("/mcp", "POST", body=b"x" * (1024**2 + 1)).status == 413
    assert server.ask("/login").json["needed"] is False


def test_a_config_that_can_not_be_used_leaves_the_old_one_in_force(serve):
    server = serve(config={"http": {"token": TOKEN}})
    (server.folder / "onetool.yaml").write_text("http: {prot: 1}\n")
    server.process.send_signal(signal.SIGHUP)
    assert "did you mean port" in server.log(wait_for="Not reloaded")[-1]["message"]
    assert server.ask("/mcp").status == 401
    assert server.ask("/mcp", headers=[("Authorization", f"Bearer {TOKEN}")]).status == 200


def test_a_reload_never_opens_what_others_can_reach(serve):
    server = serve("--host", "0.0.0.0", config={"http": {"token": TOKEN}})
    (server.folder / "onetool.yaml").write_text("{}")
    server.process.send_signal(signal.SIGHUP)
    server.log(wait_for="the previous rules stay in effect")
    assert server.ask("/mcp").status == 401


def test_a_server_whose_terminal_is_closed_stops(tmp_path):
    """And is not left behind, as it would be if it took the hang-up for a wish to reload."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, str(STAND_IN), "serve", "--port", "0"])
    shown = b""
    while b"curl" not in shown:
        shown += os.read(terminal, 65536)
    os.close(terminal)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail("it went on without its terminal")
    assert os.waitstatus_to_exitcode(status) == 0


def test_on_a_terminal_the_log_is_for_people(tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, str(STAND_IN), "serve", "--port", "0"])
    try:
        shown = b""
        while b"curl" not in shown:
            shown += os.read(terminal, 65536)
        port = int(re.search(rb"listens on http://127.0.0.1:(\d+)", shown)[1])
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20).status == 200
        while b"status 200" not in shown:
            shown += os.read(terminal, 65536)
        assert re.search(rb"info: GET /status 200 [\d.]+ ms\r\n", shown)
        os.write(terminal, b"\x03")  # Ctrl-C
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 130
    finally:
        os.close(terminal)
