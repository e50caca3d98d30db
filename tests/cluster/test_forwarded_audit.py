"""What one replica forwards to another is in the audit log of both, with the same id, or is not done."""

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager

import pytest
import warm
from cluster.conftest import shared_file
from cluster.members import Member
from cluster.test_forward_header import seal, send
from cluster.test_tasks import KNOWS, begin
from helpers import until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG
from services.audit_places import lines_in

from onetool.core.principal import Principal

pytestmark = pytest.mark.attack("replicas")

ADMIN = Principal(name="ada", owner="ada", role="admin")
BUNDLE = b"/tools/bundles/01890a5d-ac96-774b-bcce-b302099a8057"


def forwarded_lines(member):
    return [one for one in lines_in(member.folder / "state") if one.get("via") == "replica"]


def member_id(member):
    with closing(sqlite3.connect(member.folder.parent / "shared.db")) as file, file:
        return file.execute("SELECT id FROM replicas WHERE address = ?", (member.address,)).fetchone()[0]


@pytest.fixture(scope="module")
def required(tmp_path_factory):
    """Two replicas that do nothing without their audit log."""
    folder = tmp_path_factory.mktemp("required")
    config = folder / "onetool.yaml"
    packs = CONFIG.read_text().replace("[packs]", f"[{CONFIG.parent / 'packs'}]")
    config.write_text(f"{packs}\naudit: required\n")
    file = shared_file(folder)
    # The callers of forged requests have no token: a look at them would end those that take longer.
    rarely = {warm.CONSTANTS: json.dumps({"onetool.interfaces.http.admissions.CHECK_EVERY_S": 60})}
    with ExitStack() as ends:
        pair = [Member(folder / name, file, config=config, **rarely) for name in "ab"]
        for one in pair:
            ends.callback(one.stop)
        yield pair


@pytest.mark.long
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_a_forwarded_request_is_noted_by_both_with_one_id(own_pair, tmp_path, method):
    first, second = own_pair.servers
    owner = HttpPeer(first, "new", capabilities=KNOWS)
    task = begin(owner, "job", path=str(tmp_path / "it"))
    other = HttpPeer(second, "new", capabilities=KNOWS)
    other.result(method, task)
    (there,) = until(lambda: forwarded_lines(first))
    (here,) = until(lambda: [one for one in lines_in(second.folder / "state") if one["what"] == "POST /mcp"])
    assert there["id"] == here["id"] == here["own"] != ""
    assert (there["request"], there["trace"]) == (here["request"], here["trace"])
    assert there["own"] != here["own"]
    assert (there["what"], there["outcome"], there["status"]) == ("POST /mcp", "ok", 200)
    assert there["from"] == here["from"] == "127.0.0.1"
    assert there["client"] == member_id(second)
    owner.close()
    other.close()


@contextmanager
def without_audit(member):
    """Take the table of its audit log from a replica."""

    def rename(before, after):
        with closing(sqlite3.connect(member.folder / "state" / "state.db", timeout=10)) as file, file:
            file.execute(f"ALTER TABLE {before} RENAME TO {after}")

    rename("audit", "away")
    try:
        yield
    finally:
        rename("away", "audit")


FORGED = {
    "news of a session": ("POST", b"/cluster/mcp", {"session": "none"}, 202),
    "a change": ("PUT", BUNDLE, {"slug": "weather", "displayName": "Weather"}, 201),
    "a call": ("POST", b"/call/working.add", {"a": 1, "b": 2}, 200),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), FORGED.values(), ids=FORGED)
def test_nobody_with_the_key_does_anything_unnoted(required, method, path, body, status):
    target = required[0]
    data = json.dumps(body).encode()

    def sent():
        header = seal().write(member_id(target), method, path, ADMIN, data, "192.0.2.7")
        return send(target, header, data, method, path)

    def noted():
        """Return what was done. A request that was refused before is noted as soon as the log is back."""
        return [one for one in forwarded_lines(target) if one["outcome"] != "audit_unavailable"]

    before = len(noted())
    assert sent()[0] == status
    begun, ended = until(lambda: found if len(found := noted()[before:]) == 2 else None)
    assert (begun["outcome"], begun["id"], begun["who"], begun["from"]) == ("begun", ended["id"], "ada", "192.0.2.7")
    with without_audit(target):
        code, said = sent()
    assert (code, "audit" in json.dumps(said)) == (503, True)


def test_the_end_of_a_session_that_another_replica_refuses_is_told(required):
    first, second = required
    owner = HttpPeer(first, "old")
    with without_audit(first):
        refused = second.send(None, [("Mcp-Session-Id", owner.session)], method="DELETE")
    assert (refused.status, b"audit log can't be written" in refused.body) == (502, True)


def test_where_its_log_is_full_no_code_runs(required):
    peer = HttpPeer(required[0], "new", query="?menu=run")
    code = {"name": "run", "arguments": {"code": "'executed' * 2"}}
    assert "executedexecuted" in json.dumps(peer.result("tools/call", code))
    with without_audit(required[0]):
        refused = json.dumps(peer.result("tools/call", code))
    assert "audit log can't be written" in refused
    assert "executedexecuted" not in refused
    peer.close()


def test_where_its_log_is_full_a_replica_executes_nothing_of_another(required, tmp_path):
    first, second = required
    owner = HttpPeer(first, "new", capabilities=KNOWS)
    task = begin(owner, "job", path=str(tmp_path / "it"))
    with without_audit(first):
        other = HttpPeer(second, "new", capabilities=KNOWS)
        refused = other.send(other.message("tasks/cancel", task))
    assert (refused.status, b"audit log can't be written" in refused.body) == (503, True)
    assert not (tmp_path / "it.cancelled").exists()
    assert owner.result("tasks/get", task)["status"] == "working"
    owner.close()
    other.close()
