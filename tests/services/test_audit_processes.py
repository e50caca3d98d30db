"""Several processes append to one audit log. One of them is killed in the middle, or keeps the lock."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import until

from onetool.config.model import AuditConfig
from onetool.services.audit import AuditLog, AuditUnavailableError, files
from onetool.services.audit.files import AuditFolder
from onetool.services.audit.record import AuditFilter

WRITER = """
import sys
from pathlib import Path
from onetool.config.model import AuditConfig
from onetool.services.audit import AuditLog
log = AuditLog(Path(sys.argv[1]), AuditConfig(max_mb=1))
print("ready", flush=True)
number = 0
while number < int(sys.argv[3]):
    log.record("admin", sys.argv[2] + "x" * 250, id=f"{sys.argv[2]}:{number}")
    number += 1
    if number % 50 == 0:
        log.flush()
log.close()
"""

HOLDER = """
import sys, time
from pathlib import Path
from onetool.core import flock
with flock.held(Path(sys.argv[1]) / ".lock"):
    print("held", flush=True)
    time.sleep(600)
"""


def started(code: str, *args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    with process.stdout as lines:
        lines.readline()
    return process


def test_two_processes_append_to_the_same_files_and_no_line_is_lost(tmp_path: Path) -> None:
    writers = [started(WRITER, str(tmp_path), name, "6000") for name in "ab"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    found = [json.loads(line) for file in sorted(tmp_path.glob("*.jsonl")) for line in file.read_text().splitlines()]
    for name in "ab":
        assert [one["id"] for one in found if one["id"].startswith(name)] == [f"{name}:{n}" for n in range(6000)]
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    assert all(file.stat().st_size < 1.2 * 1024**2 for file in tmp_path.glob("*.jsonl"))
    assert (tmp_path / "key").stat().st_size == 64


def test_a_killed_process_leaves_whole_lines_and_others_go_on(tmp_path: Path) -> None:
    killed = started(WRITER, str(tmp_path), "k", "1000000")
    other = started(WRITER, str(tmp_path), "o", "4000")
    until(lambda: any(b'"id":"k:100"' in file.read_bytes() for file in tmp_path.glob("*.jsonl")), within=60)
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    assert other.wait(120) == 0
    records, before = [], None
    while True:
        page = AuditFolder(tmp_path).page(AuditFilter(), 1000, before)
        records += page.records
        assert page.skipped <= 1  # what was being written when it was killed
        if (before := page.before) is None:
            break
    assert {f"o:{n}" for n in range(4000)} <= {record.id for record in records}
    of_killed = [int(record.id[2:]) for record in records if record.id.startswith("k")][::-1]
    assert len(of_killed) > 100
    assert of_killed == list(range(len(of_killed)))


def test_a_process_that_holds_the_lock_for_ever_stops_no_call_unless_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    AuditLog(tmp_path, AuditConfig()).close()
    holder = started(HOLDER, str(tmp_path))
    try:
        required, usual = (AuditLog(tmp_path, AuditConfig(mode=mode)) for mode in ("required", "usual"))
        with pytest.raises(AuditUnavailableError, match="another process"):
            required.write("call", "web.get")
        usual.record("admin", "waits")
    finally:
        holder.kill()
        holder.wait(10)
    usual.close()
    assert [record.what for record in AuditFolder(tmp_path).page(AuditFilter(), 10).records] == ["waits"]
