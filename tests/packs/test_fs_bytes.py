"""Paths that were bytes: an argument error with words, and no strange file name."""

import asyncio

import pytest

from onetool.app import App
from onetool.core.call import ToolCall


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b'there'").write_text("there")
    with App.open() as app:
        yield app


@pytest.mark.parametrize("path", ["b'a.txt'", 'b"a.txt"', "B'a.txt'"])
@pytest.mark.parametrize("tool", ["fs.read_file", "fs.list_dir"])
def test_the_text_of_bytes_is_no_path(app, tool, path):
    error = asyncio.run(app.call(ToolCall("1", tool, {"path": path}))).error
    assert error.code == "invalid_args"
    assert "bytes" in error.message
    assert '"a.txt"' in error.message or "'a.txt'" in error.message


@pytest.mark.parametrize("code", ["fs.read_file(path=b'a.txt')", "p = b'a.txt'\nfs.read_file(p)", "fs.list_dir(b'.')"])
def test_bytes_of_code_are_no_path(app, code):
    error = app.run_sync(code).error
    assert error is not None
    assert "bytes" in error.message


def test_a_file_that_is_really_called_so_can_be_read(app):
    assert asyncio.run(app.call(ToolCall("1", "fs.read_file", {"path": "./b'there'"}))).data == "there"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("fs.read_file('nope')", "not_found"),
        ("fs.read_file('/etc/passwd')", "denied"),
        ("await fs.read_file('/etc/passwd')", "denied"),
        (f"fs.read_file('{'n' * 200}')", "not_found"),
        (f"fs.read_file('{'n/' * 2000}')", None),
    ],
)
def test_a_run_keeps_the_reason(app, code, reason):
    error = app.run_sync(code).error
    assert error.reason == reason if reason else error.reason
