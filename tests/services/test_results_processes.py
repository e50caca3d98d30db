"""Kept results and processes: what one of them is killed over, what they do to each other, and what outlives them."""

import os
import subprocess
import sys
from time import monotonic, sleep, time

import pytest
from services.pages import query

from onetool.services.results import SMALL, ResultStore

MB = 1024 * 1024

PUTTING = """
import sys
from pathlib import Path
from onetool.services.results import ResultStore as Results
results, text = Results(Path(sys.argv[1]), 3600, 100), "some lines é\\n" * (2 * 1024 * 1024)
while True:
    print(results.put(text, "alice").handle, flush=True)
"""

SHARING = """
import sys
from pathlib import Path
from onetool.services.results import ResultExpiredError, ResultStore as Results
results, mine = Results(Path(sys.argv[1]), 3600, 8), {}
for number in range(10):
    text = f"{sys.argv[2]} {number} é\\n" * 150_000
    mine[results.put(text).handle] = text
    for handle, text in mine.items():
        try:
            for offset in (1, 75_000, 149_950):
                assert results.page(handle, offset=offset)["lines"] == text.split("\\n")[offset - 1 : -1][:100]
            assert results.page(handle, search="nothing")["total_lines"] == 150_000
        except ResultExpiredError as error:
            assert "make room" in str(error), error
            mine[handle] = ""
    mine = {handle: text for handle, text in mine.items() if text}
assert mine
"""


def python(code, *args, **options):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], **options)


def whole(folder):
    return sorted(path for path in folder.glob("*.txt") if not path.name.startswith("."))


def drafts(folder):
    return sorted(folder.glob(".*.txt"))


def half_written(folder):
    for path in drafts(folder):
        try:
            if MB < path.stat().st_size < 20 * MB:
                return True
        except FileNotFoundError:  # finished meanwhile
            pass
    return False


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_process_that_is_killed_while_it_puts_leaves_no_half_result(tmp_path):
    left = 0
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        process = python(PUTTING, folder, stdout=subprocess.PIPE, text=True)
        try:
            give_up = monotonic() + 60
            while not half_written(folder):
                assert monotonic() < give_up
                sleep(0.0005)
        finally:
            process.kill()
        handles = process.communicate(timeout=60)[0].split()
        expected = "some lines é\n" * (2 * MB)
        results = ResultStore(folder, 3600, 100)
        for handle in handles[-2:]:
            assert results.page(handle, "alice", 2 * MB - 5) == query(expected, 2 * MB - 5)
        assert len({path.stat().st_size for path in whole(folder)}) <= 1
        for path in whole(folder):
            assert path.read_bytes()[-16:][::-1].hex() == path.stem
        left += len(drafts(folder))
        results.sweep()
        ResultStore(folder, 3600, 100, now=lambda: time() + 310).sweep()
        assert drafts(folder) == []
        if left and attempt > 1:
            break
    assert left, "no process was killed at the right moment"


def test_many_processes_put_and_read_and_make_room_at_once(tmp_path):
    folder = tmp_path / "results"
    processes = [python(SHARING, folder, number) for number in range(3)]
    assert [process.wait(120) for process in processes] == [0] * 3
    assert drafts(folder) == []
    results = ResultStore(folder, 3600, 8)
    results.sweep()
    assert 0 < sum(path.stat().st_size for path in whole(folder)) <= 8 * MB


def test_a_result_outlives_the_process_that_put_it(tmp_path):
    code = "import sys; from pathlib import Path; from onetool.services.results import ResultStore as Results; "
    code += f"print(Results(Path(sys.argv[1]), 3600, 100).put('a line\\n' * {SMALL}, 'alice').handle)"
    process = python(code, tmp_path, stdout=subprocess.PIPE, text=True)
    handle = process.communicate(timeout=60)[0].strip()
    assert process.returncode == 0
    page = ResultStore(tmp_path, 3600, 100).page(handle, "alice", SMALL)
    assert (page["lines"], page["total_lines"]) == (["a line"], SMALL)
