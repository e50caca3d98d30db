"""`onetool serve --workers N`: several processes serve at one address. They are replaced, reloaded and stopped.

The server of these tests is one: each leaves it as it was, and the last one stops it.
"""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import start, until
from interfaces.http.fleet import ALSO_LIMITED, LIMITED, PATIENCE, Load, Workers
from interfaces.mcp.servers import environment
from services.exposition import read_exposition

from onetool.interfaces.http.workers import ORPHAN_S


@pytest.fixture(scope="module")
def start_fleet(tmp_path_factory):
    """The server that runs, or a new one if a test has stopped it."""
    made = []

    def begin():
        if not made or made[-1].process.poll() is not None:
            made.append(Workers(tmp_path_factory.mktemp("fleet"), 3))
        return made[-1]

    yield begin
    for server in made:
        if server.process.poll() is None:
            server.stop()
        assert "Traceback" not in server.log()
        assert server.harness.left() == []


@pytest.fixture
def fleet(start_fleet):
    running = start_fleet()
    yield running
    running.hang_up()


@pytest.fixture
def each(fleet):
    """A kept connection to each worker, by its process id."""
    return fleet.connected()


def in_turn(each, count):
    """So many connections, each the next worker's."""
    connections = list(each.values())
    return [connections[number % len(connections)] for number in range(count)]


def test_each_worker_starts_a_server_that_may_be_replicated(fleet, each):
    pids = [int(fleet.call("ok.pid", one)) for one in in_turn(each, 6)]
    assert pids[:3] == pids[3:]
    assert sorted(pids[:3]) == sorted(fleet.harness.started())


def test_several_processes_answer_and_it_greets_once(fleet, each):
    assert each.keys() == fleet.workers()
    assert len(each) == 3
    assert fleet.greeting_file.read_text().count("OneTool listens on") == 1


def test_any_worker_answers_for_the_metrics_of_all(fleet, each):
    for one in each.values():
        fleet.call("pid.get", one)
    for one in each.values():
        response, text = fleet.ask("GET", "/metrics", on=one)
        assert response.status == 200
        found = read_exposition(text)
        assert len({dict(labels)["replica"] for labels in found["onetool_info"]}) == 3
        assert {*found["onetool_replicas"].values()} == {3}
        counted = {dict(one)["replica"]: value for one, value in found["onetool_calls_total"].items()}
        assert len(counted) == 3
        assert fleet.ask("GET", "/status", on=one)[0].headers["onetool-replica"] in counted


def test_log_lines_say_which_worker_wrote_them(fleet, each):
    def writers():
        lines = [json.loads(line) for line in fleet.log().splitlines()]
        return {line["replica"] for line in lines if line["logger"] == "onetool.access"}

    until(lambda: len(writers()) == 3)  # a line is written after its response


def test_all_workers_are_one_server_for_the_page(fleet):
    def hello(made):
        from interfaces.http.fleet import TOKEN

        made.request("GET", "/events", headers={"Accept": "text/event-stream", "Authorization": f"Bearer {TOKEN}"})
        response = made.getresponse()
        line = next(line for line in iter(response.readline, b"") if line.startswith(b"data:"))
        made.close()
        return json.loads(line[5:])["instance"]

    assert len({hello(one) for one in fleet.connected().values()}) == 1


# Rates


def test_a_rate_of_a_token_holds_over_all_workers(fleet, each):
    told = [fleet.ask("POST", "/call/pid.get", {}, on=one, token=LIMITED)[0] for one in in_turn(each, 45)]
    assert [one.status for one in told] == [200] * 20 + [429] * 25
    assert all(int(one.headers["Retry-After"]) > 50 for one in told[20:])


def test_a_rate_is_never_exceeded_by_many_at_once(fleet):
    with ThreadPoolExecutor(8) as threads:
        asked = lambda _: fleet.ask("POST", "/call/pid.get", {}, token=ALSO_LIMITED)[0].status  # noqa: E731
        told = list(threads.map(asked, range(24)))
    assert (told.count(200), told.count(429)) == (5, 19)


def test_a_limit_of_a_tool_holds_over_all_workers(fleet, each):
    path = "/tools/bundles/019a8d3c-0000-7000-8000-000000000001"
    tool = {
        "type": "python",
        "argSchema": {"type": "object"},
        "pythonImpl": {"func": "pid.get"},
        "limits": {"maxCallsPerMinute": 4},
    }
    assert fleet.ask("PUT", path, {"slug": "rare"})[0].status == 201
    made, said = fleet.ask("PUT", f"{path}/tools/one/version/1", tool)
    assert made.status == 201, said
    told = [fleet.ask("POST", "/call/rare.one", {}, on=one)[0].status for one in in_turn(each, 9)]
    assert told == [200] * 4 + [429] * 5


# Reloads


@pytest.fixture
def alias(fleet):
    """Write a config with this alias; the one before comes back."""
    before = fleet.config.read_text()
    yield lambda name: fleet.config.write_text(json.dumps(json.loads(before) | {"aliases": {name: "pid.get"}}))
    fleet.config.write_text(before)


def test_a_reload_reaches_all(fleet, each, alias):
    alias("mine")
    fleet.reload()
    for pid, one in each.items():
        until(lambda: fleet.ask("POST", "/call/mine", {}, on=one)[0].status == 200)  # noqa: B023
        assert fleet.call("mine", one) == pid
    fleet.config.write_text("{")
    fleet.reload()
    until(lambda: "Not reloaded" in fleet.log())
    assert {fleet.call("mine", one) for one in each.values()} == fleet.workers()


def test_a_reload_that_one_worker_was_asked_for_reaches_all(fleet, each, alias):
    alias("yours")
    fleet.call("ot.reload", next(iter(each.values())))
    for one in each.values():
        until(lambda: fleet.ask("POST", "/call/yours", {}, on=one)[0].status == 200)  # noqa: B023


def test_each_reads_settings_by_itself_and_code_waits_in_all(fleet, each, alias):
    pack = fleet.folder / "pid.py"
    before = pack.read_text()
    pack.write_text(before.replace("def get()", "def other()"))
    alias("ours")
    for pid, one in each.items():
        until(lambda: fleet.ask("POST", "/call/ours", {}, on=one)[0].status == 200)  # noqa: B023
        assert fleet.call("ours", one) == pid
        until(lambda: f"kill -HUP {fleet.process.pid}" in fleet.ask("POST", "/call/pid.other", {}, on=one)[1].decode())  # noqa: B023
    fleet.reload()
    for pid, one in each.items():
        until(lambda: fleet.ask("POST", "/call/pid.other", {}, on=one)[0].status == 200)  # noqa: B023
        assert fleet.call("pid.other", one) == pid
    pack.write_text(before)
    fleet.reload()
    for one in each.values():
        until(lambda: fleet.ask("POST", "/call/pid.get", {}, on=one)[0].status == 200)  # noqa: B023


# Ends


def test_one_that_is_killed_is_replaced_and_calls_of_others_go_on(fleet):
    loads = {pid: Load(fleet, kept) for pid, kept in fleet.connected().items()}
    for load in loads.values():
        load.goes_on()
    killed, before = min(loads), fleet.workers()
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(fleet.workers() - {killed}) == 3, PATIENCE)
    for load in loads.values():
        load.goes_on()
    failures = {pid: load.end() for pid, load in loads.items()}
    assert [pid for pid in failures if failures[pid]] in ([], [killed])  # nobody who was connected to another one
    assert len(failures[killed]) <= 1  # the call that it was killed in
    for pid, load in loads.items():
        assert pid == killed or load.pids == {pid}
    (new,) = fleet.workers() - before
    assert until(lambda: new in fleet.connected())
    assert fleet.call("ok.echo", text="still there") == "still there"
    assert f"A worker (process {killed}) was ended by signal 9; starting another one" in fleet.log()


def test_calls_under_way_are_finished_when_it_is_told_to_stop(fleet, tmp_path):
    workers, begun = fleet.workers(), [tmp_path / str(number) for number in range(6)]
    with ThreadPoolExecutor(len(begun)) as threads:
        calls = [threads.submit(fleet.call, "pid.slow", seconds=0.5, begun=str(file)) for file in begun]
        until(lambda: all(file.exists() for file in begun))
        fleet.process.terminate()
        assert {call.result(PATIENCE) for call in calls} <= workers
    assert fleet.process.wait(PATIENCE) == 0
    assert fleet.workers() == set()


def test_workers_end_within_two_seconds_when_their_parent_is_killed(fleet, tmp_path):
    assert ORPHAN_S <= 1  # on a busy machine, all takes longer
    workers, begun = fleet.workers(), tmp_path / "begun"
    with ThreadPoolExecutor(1) as threads:
        threads.submit(fleet.ask, "POST", "/call/pid.slow", {"seconds": 60, "begun": str(begun)})
        until(begun.exists)
        fleet.process.kill()
        until(lambda: not any(map(is_running, workers)), 20)
    fleet.process.wait()


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_fails_ends_the_server(tmp_path):
    """What the parent doesn't run, because it runs no packs."""
    (tmp_path / "bad.py").write_text('"""Ends its process."""\nimport os\nos._exit(7)\n')
    (tmp_path / "onetool.yaml").write_text("packs: [bad.py]\n")
    process = start(
        *("--config", "onetool.yaml", "serve", "--port", "0", "--workers", "2"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "has ended with exit code 7" in told) == (7, True)


def test_a_config_that_cannot_be_used_is_told_once(tmp_path):
    (tmp_path / "onetool.yaml").write_text("prt: 1\nhttp: {port: no}\n")
    process = start(
        *("--config", "onetool.yaml", "serve", "--workers", "2"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (2, "")
    assert told.count("http.port") == 1
