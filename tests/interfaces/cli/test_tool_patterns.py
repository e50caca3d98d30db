"""`--tool-allow 'time.*'`: patterns allow what fits them, in every command that takes the option."""

import json

import pytest
from ask.stand_in import Says
from helpers import cli, session_text
from interfaces.cli.ask.shop import shop as shop  # a fixture

from onetool import Registry
from onetool.app import App


def names(*args, cwd):
    return [tool["name"] for tool in json.loads(cli("tools", *args, cwd=cwd).stdout)]


def test_tools_that_fit_are_listed_found_and_exported(tmp_path):
    by_name = names("list", "--tool-allow", "fs.read_file,time.now,shell.pwd", cwd=tmp_path)
    assert len(by_name) == 3
    assert names("list", "--tool-allow", "fs.read*,time.*,shell.pwd", cwd=tmp_path) == by_name
    found = names("search", "read a file", "--tool-allow", "fs.*", cwd=tmp_path)
    assert found
    assert all(name.startswith("fs.") for name in found)
    exported = json.loads(cli("tools", "export", "--provider", "openai", "--tool-allow", "time.*", cwd=tmp_path).stdout)
    assert [tool["function"]["name"] for tool in exported] == ["time__now"]
    assert json.loads(cli("tools", "info", "time.now", "--tool-allow", "fs.*", cwd=tmp_path).stdout)["allowed"] is False
    assert json.loads(cli("tools", "info", "time.now", "--tool-allow", "t*", cwd=tmp_path).stdout)["allowed"] is True


@pytest.mark.parametrize(
    ("pattern", "fits"), [("time.*", True), ("*", True), ("t?me.now", True), ("[st]*.now", True), ("tim", False)]
)
def test_what_fits_can_be_called_and_nothing_else(pattern, fits, tmp_path):
    for command in (["tools", "invoke", "time.now"], ["run", "time.now()"]):
        done = cli(*command, "--tool-allow", f"tools.echo,{pattern}", cwd=tmp_path)
        assert (done.returncode == 0) is fits, done.stderr
        assert fits or "not allowed here" in done.stdout + done.stderr


def test_a_tool_that_calls_others_hands_the_pattern_on(tmp_path):
    code = "ot.search('time')"
    assert cli("run", "--tool-allow", "ot.*", code, cwd=tmp_path).returncode == 0
    assert "time.now" not in cli("run", "--tool-allow", "ot.*", code, cwd=tmp_path).stdout
    assert "time.now" in cli("run", "--tool-allow", "ot.*,time.*", code, cwd=tmp_path).stdout


def test_a_pattern_that_fits_nothing_is_told_with_the_nearest(tmp_path):
    done = cli("tools", "list", "--tool-allow", "tiem.*,time.*,fs.raed_file", cwd=tmp_path)
    assert "--tool-allow matches no tool: tiem.*; did you mean time.*?" in done.stderr
    assert "--tool-allow matches no tool: fs.raed_file; did you mean fs.read_file" in done.stderr
    assert "no tool: time.*" not in done.stderr


def test_completion_offers_patterns_of_packs(tmp_path):
    words = "onetool tools list --tool-allow time.now,fs."
    env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    offered = cli(cwd=tmp_path, env=env).stdout
    assert "time.now,fs.*" in offered
    assert "time.now,fs.read_file" in offered
    single = {**env, "COMP_WORDS": "onetool tools info fs.", "COMP_CWORD": "3"}
    assert "fs.*" not in cli(cwd=tmp_path, env=single).stdout


def test_a_model_sees_what_fits_and_the_session_keeps_the_pattern(shop):
    shop.model.will(Says("Well."), Says("Well."))
    for args in (["--tool-allow", "shop.p*", "--new-session", "--session", "s1"], ["--session", "s1"]):
        done = cli("ask", "What?", *args, cwd=shop.folder, env=shop.env)
        assert done.returncode == 0, done.stderr
        assert [tool["function"]["name"] for tool in shop.model.seen[-1].body["tools"]] == ["shop__price"]
    assert '"shop.p*"' in session_text(shop.folder, "s1")


def test_a_chat_lists_and_calls_what_fits(shop):
    lines = "/tools\n+shop.price item=tea\n+time.now\n"
    done = cli("chat", "--tool-allow", "shop.p*", cwd=shop.folder, env=shop.env, stdin=lines)
    listed = [line for line in done.stdout.splitlines() if line.startswith("+")]
    assert [line.split()[0] for line in listed] == ["+shop.price"]
    assert "\n3\n" in done.stdout
    assert "not allowed here" in done.stderr


def test_the_config_may_name_patterns_for_questions(tmp_path):
    (tmp_path / "onetool.yaml").write_text("ask: {tools: [time.*, tiem.*]}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        assert [one.message for one in app.mistakes] == ["no tool matches tiem.*"]
        assert [tool.name for tool in app._ask_service.toolset(None).specs] == ["time.now"]


def test_one_text_is_no_list_of_patterns():
    with pytest.raises(TypeError, match="list of names and patterns"):
        Registry().allowing("web.*")
