"""5-calls-and-ask.md: a test for each [SOT] line about models, registry, built-in tools, executor and `tools …`."""

import json
import os
import time
from datetime import datetime

import pytest
from helpers import BUILT_IN_TOOLS, cli, definition, run

from onetool import App, Executor, Registry, ToolCall, ToolResult, ToolSpec


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return App.open()


# [SOT] three models


def test_tool_spec_has_name_description_input_schema_and_handler():
    def handler():
        return 1

    spec = ToolSpec(name="a.b", description="d", input_schema={"type": "object"}, handler=handler)
    assert (spec.name, spec.description, spec.input_schema, spec.handler) == ("a.b", "d", {"type": "object"}, handler)
    with pytest.raises(AttributeError):
        spec.name = "other"
    with pytest.raises(TypeError, match="can't be changed"):
        spec.input_schema["type"] = "string"


def test_tool_call_has_id_name_args_source():
    call = ToolCall(id="1", name="time.now", args={}, source="test")
    assert (call.id, call.name, call.args, call.source) == ("1", "time.now", {}, "test")
    with pytest.raises(AttributeError):
        call.name = "other"


def test_tool_result_has_ok_data_error_meta(app):
    result = run(app.runtime.executor, "time.now")
    assert isinstance(result, ToolResult)
    assert result.ok is True
    assert result.error is None
    assert result.meta["tool"] == "time.now"
    assert result.meta["source"] == "test"
    assert isinstance(result.meta["duration_ms"], float)
    with pytest.raises(AttributeError):
        result.ok = False


# [SOT] registration and discovery


def test_list_get_and_allow_list():
    registry = Registry()
    for name in ("c", "a", "b"):
        registry.register(definition(name))
    assert [spec.name for spec in registry.list()] == ["c", "a", "b"]
    assert registry.get("a").name == "a"
    assert [spec.name for spec in registry.list(allowed=["b", "c"])] == ["c", "b"]
    assert registry.list(allowed=[]) == []
    assert registry.unmatched(["a", "x"]) == ["x"]


def test_a_tool_that_the_allow_list_does_not_name_is_not_callable():
    registry = Registry()
    for name in ("open", "shut"):
        registry.register(definition(name))
    executor = Executor(registry, allowed=["open"])
    assert run(executor, "open").ok
    error = run(executor, "shut").error
    assert (error.code, error.reason) == ("tool_not_found", "denied")


# [SOT] five built-in tools


def test_exactly_five_tools_are_built_in_beside_the_pack_ot(app):
    found = {spec.name for spec in app.tools() if spec.pack != "ot"}
    assert found == set(BUILT_IN_TOOLS), "name it in BUILT_IN_TOOLS, in tests/helpers.py"


def test_time_now_returns_timestamp_and_iso(app):
    data = run(app.runtime.executor, "time.now").data
    assert abs(data["timestamp"] - time.time() * 1000) < 60_000
    assert datetime.fromisoformat(data["iso"]).timestamp() * 1000 == pytest.approx(data["timestamp"], abs=1)


@pytest.mark.parametrize("message", ["hello", "", "é\n\t", 5, 1.5, None, True, [1, [2]], {"a": {"b": None}}])
def test_tools_echo_gives_its_content_back_unchanged(app, message):
    assert run(app.runtime.executor, "tools.echo", message=message).data == message


def test_shell_pwd_is_the_working_directory_as_a_string(app):
    assert run(app.runtime.executor, "shell.pwd").data == os.getcwd()


def test_fs_list_dir_lists_a_directory(app, tmp_path):
    (tmp_path / "a.txt").write_text("four")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("")
    assert run(app.runtime.executor, "fs.list_dir", path=".").data == [
        {"path": "a.txt", "type": "file", "size": 4},
        {"path": "sub", "type": "directory", "size": None},
    ]
    deep = run(app.runtime.executor, "fs.list_dir", path=".", recursive=True).data
    assert "sub/b.txt" in [entry["path"] for entry in deep]
    properties = app.catalog.registry.get("fs.list_dir").parameters["properties"]
    assert (properties["recursive"]["default"], properties["maxDepth"]["default"]) == (False, 4)


def test_fs_list_dir_goes_no_deeper_than_max_depth(app, tmp_path):
    (tmp_path / "1/2/3/4/5/6").mkdir(parents=True)
    paths = [entry["path"] for entry in run(app.runtime.executor, "fs.list_dir", recursive=True).data]
    assert max(path.count("/") for path in paths) + 1 == 4


def test_fs_read_file_reads_a_file(app, tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    assert run(app.runtime.executor, "fs.read_file", path="a.txt").data == "hello\n"
    assert app.catalog.registry.get("fs.read_file").parameters["properties"]["maxBytes"]["default"] == 204_800


def test_fs_read_file_over_the_limit_is_an_error(app, tmp_path):
    (tmp_path / "a.txt").write_text("x" * 11)
    assert run(app.runtime.executor, "fs.read_file", path="a.txt", maxBytes=11).ok
    error = run(app.runtime.executor, "fs.read_file", path="a.txt", maxBytes=10).error
    assert error.code == "execution_error"
    assert "maxBytes" in error.message
    (tmp_path / "large.txt").write_text("x" * 204_801)
    assert not run(app.runtime.executor, "fs.read_file", path="large.txt").ok


# [SOT] the executor and its three codes


def test_tool_not_found(app):
    error = run(app.runtime.executor, "tim.now").error
    assert error.code == "tool_not_found"
    assert error.hints == ("time.now",)
    assert "time.now" in error.message


def test_invalid_args(app):
    error = run(app.runtime.executor, "fs.list_dir", pth=".", maxDepth="deep", recursive=1).error
    assert error.code == "invalid_args"
    problems = {problem.path: problem for problem in error.details}
    assert set(problems) == {"pth", "maxDepth", "recursive"}
    assert problems["maxDepth"].expected == "a whole number"
    assert problems["maxDepth"].got == "the string 'deep'"
    assert "path" in problems["pth"].hint
    missing = run(app.runtime.executor, "fs.read_file").error
    assert (missing.code, missing.details[0].path) == ("invalid_args", "path")


def test_execution_error(app):
    error = run(app.runtime.executor, "fs.read_file", path="nowhere.txt").error
    assert error.code == "execution_error"


# [SOT] `tools …` on the command line


def test_tools_list_shows_name_description_input_schema(tmp_path):
    done = cli("tools", "list", cwd=tmp_path)
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    assert len(listed) > 5
    assert all(set(tool) == {"name", "description", "inputSchema"} for tool in listed)
    assert done.stderr == ""


def test_tools_list_with_an_allow_list(tmp_path):
    done = cli("tools", "list", "--tool-allow", "shell.pwd,time.now,no.such", cwd=tmp_path)
    assert [tool["name"] for tool in json.loads(done.stdout)] == ["time.now", "shell.pwd"]
    assert "no.such" in done.stderr
    assert cli("tools", "list", "--tool-allow=", cwd=tmp_path).returncode == 2


def test_tools_info_shows_schema_and_run_time_facts(tmp_path, own_home):
    before = json.loads(cli("tools", "info", "time.now", cwd=tmp_path).stdout)
    assert before["inputSchema"]["type"] == "object"
    assert (before["source"], before["allowed"], before["enabled"]) == ("local", True, True)
    assert (before["calls"], before["success_rate"], before["median_ms"], before["last_called"]) == (
        0,
        None,
        None,
        None,
    )
    for args in ("{}", "{}", '{"x": 1}'):
        cli("tools", "invoke", "time.now", "--args", args, cwd=tmp_path)
    after = json.loads(cli("tools", "info", "time.now", "--tool-allow", "shell.pwd", cwd=tmp_path).stdout)
    assert (after["calls"], after["success_rate"], after["allowed"]) == (3, 66.7, False)
    assert after["median_ms"] >= 0
    assert datetime.fromisoformat(after["last_called"])


def test_tools_invoke_calls_a_tool_by_hand(tmp_path):
    done = cli("tools", "invoke", "tools.echo", "--args", '{"message": "hé"}', cwd=tmp_path)
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert set(printed) == {"call", "result"}
    assert printed["call"]["name"] == "tools.echo"
    assert printed["call"]["args"] == {"message": "hé"}
    assert printed["result"]["data"] == "hé"
    assert cli("tools", "invoke", "tools.echo", cwd=tmp_path).returncode == 1
    assert cli("tools", "invoke", "no.such", cwd=tmp_path).returncode == 1
    assert cli("tools", "invoke", "tools.echo", "--args", "{", cwd=tmp_path).returncode == 2
    denied = cli("tools", "invoke", "time.now", "--tool-allow", "shell.pwd", cwd=tmp_path)
    assert json.loads(denied.stdout)["result"]["error"]["reason"] == "denied"
