"""The packs of one function each: `time`, `tools` and `shell`."""

import inspect
import os
import subprocess
import sys
import time as clock
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from helpers import each

from onetool.packs import shell, time, tools
from onetool.sdk import ToolFailure
from onetool.sdk.decorators import marks_of
from onetool.sources.packs import BUILTIN


def test_now_tells_one_instant_twice() -> None:
    before = clock.time_ns() // 1_000_000
    now = time.now()
    after = clock.time_ns() // 1_000_000
    assert before <= now["timestamp"] <= after
    assert set(now) == {"timestamp", "iso"}
    assert now["iso"].endswith("Z")
    assert round(datetime.fromisoformat(now["iso"]).timestamp() * 1000) == now["timestamp"]


def test_now_is_in_utc_wherever_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    clock.tzset()
    try:
        before, told = datetime.now(UTC), datetime.fromisoformat(time.now()["iso"])
    finally:
        monkeypatch.undo()
        clock.tzset()
    assert told.utcoffset() == UTC.utcoffset(None)
    assert before - timedelta(seconds=1) <= told <= datetime.now(UTC)


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1000, 1_700_000_000_007])
def test_now_keeps_the_milliseconds(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    monkeypatch.setattr(clock, "time_ns", lambda: milliseconds * 1_000_000 + 999_999)
    now = time.now()
    assert now["timestamp"] == milliseconds
    assert round(datetime.fromisoformat(now["iso"]).timestamp() * 1000) == milliseconds


@each("message", ["", "text", "\0\ud800", 0, -1, 1.5, 10**30, True, None, [], [1, [2]], {"a": {"b": None}}, "${x}"])
def test_echo_gives_back_what_it_got(message: Any) -> None:
    assert tools.echo(message) is message


def test_pwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell.pwd() == os.path.realpath(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="names are always UTF-8 here")
def test_pwd_with_a_name_that_is_not_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert shell.pwd() == f"{tmp_path}/\\xff"


def test_pwd_in_a_deleted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ToolFailure, match="working directory") as caught:
        shell.pwd()
    assert caught.value.reason == "not_found"


@pytest.mark.parametrize("pack", BUILTIN)
def test_every_tool_can_be_described(pack: str) -> None:
    module = import_module(f"onetool.packs.{pack}")
    assert module.pack == pack
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("_") or function.__module__ != module.__name__:
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty
        assert (function.__doc__ or "").partition("\n")[0].endswith(".")
        assert marks_of(function).read_only
        for parameter in signature.parameters.values():
            assert parameter.annotation is not parameter.empty
            assert f"{parameter.name}: " in function.__doc__


def test_listing_the_packs_loads_nothing_heavy() -> None:
    code = (
        "import sys; import onetool.packs.fs, onetool.packs.shell, onetool.packs.time, onetool.packs.tools;"
        "print([name for name in ('ctypes', 'rapidfuzz', 'onetool.services.file_access', 'jsonschema_rs')"
        " if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"
