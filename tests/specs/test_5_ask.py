"""5-calls-and-ask.md: a test for each [SOT] line about `ask`, with the decisions that go with it; by command line."""

import json
import shutil

import pytest
from ask.stage import Stage
from ask.stand_in import Fails, Says, Wants
from helpers import cli

LOOK = Says("Let me look.", calls=[Wants("time__now", {}), Wants("tools__echo", {"message": "hi"})])
NOON = Says("It is noon.")
FIELDS = {"toolCalls", "toolResults", "toolError", "sessionContextUpdated"}


@pytest.fixture
def stage(tmp_path):
    with Stage(tmp_path) as stage:
        yield stage
        assert not stage.model.refused


def ask(stage, *args, stdin=None):
    """One object, as `--json` gives it."""
    done = cli("ask", "--config", str(stage.config), *args, "--json", cwd=stage.folder, stdin=stdin or "")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


# [SOT] `ask` becomes a minimal tool-calling loop


def test_tools_are_on_by_default_and_the_visible_list_is_in_the_models_context(stage):
    stage.model.will(NOON)
    ask(stage, "What time is it?")
    visible = {spec.name.replace(".", "__") for spec in stage.app.tools()}
    assert set(stage.model.seen[0].tools) == visible
    assert "time__now" in visible


def test_calls_are_executed_in_order_and_results_go_back_to_the_model_which_writes_the_answer(stage):
    stage.model.will(LOOK, NOON)
    answer = ask(stage, "What time is it?")
    assert answer["answer"] == "It is noon."
    first, second = stage.model.seen
    assert second.messages[: len(first.messages)] == first.messages
    assert [one["role"] for one in second.messages[-3:]] == ["assistant", "tool", "tool"]
    assert "hi" in second.messages[-1]["content"]
    assert [one["name"] for one in answer["toolCalls"]] == ["time.now", "tools.echo"]
    assert all(one.keys() == {"id", "name", "args", "source"} for one in answer["toolCalls"])


def test_results_are_added_to_the_sessions_context(stage):
    stage.model.will(LOOK, NOON)
    first = ask(stage, "What time is it?", "--session", "talk")
    assert first["sessionContextUpdated"] is True
    stage.model.will(Says("Still noon."))
    ask(stage, "And now?", "--session", "talk")
    roles = [one["role"] for one in stage.model.seen[-1].messages]
    assert roles[-6:] == ["user", "assistant", "tool", "tool", "assistant", "user"]


# [SOT] `ask` output always has these fields


def test_the_four_fields_are_always_there(stage):
    stage.model.will(NOON)
    answer = ask(stage, "What time is it?")
    assert {key: answer[key] for key in FIELDS} == {
        "toolCalls": [],
        "toolResults": [],
        "toolError": None,
        "sessionContextUpdated": False,
    }
    assert {"answer", "sessionId", "provider", "model", "usage", "steps"} <= answer.keys()


def test_they_are_there_when_it_fails(stage):
    stage.model.will(LOOK, Fails(400, "no such thing"))
    done = cli("ask", "--config", str(stage.config), "?", "--json", cwd=stage.folder, stdin="")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert answer["answer"] is None
    assert answer["error"]["message"]
    assert answer.keys() >= FIELDS
    assert len(answer["toolResults"]) == 2
    assert answer["sessionContextUpdated"] is True


def test_tool_results_have_call_and_result_in_call_order_matched_by_id_alone(stage):
    same = [Wants("tools__echo", {"message": word}, id="same") for word in ("a", "b", "c")]
    stage.model.will(Says("", calls=same), NOON)
    answer = ask(stage, "?")
    ids = [one["id"] for one in answer["toolCalls"]]
    assert len(set(ids)) == 3
    assert [one["call"]["id"] for one in answer["toolResults"]] == ids
    assert [one["result"]["data"] for one in answer["toolResults"]] == ["a", "b", "c"]
    assert answer["toolResults"][0]["call"].keys() >= {"id", "name", "args", "source"}
    assert answer["toolResults"][0]["result"].keys() >= {"ok", "data", "error", "meta"}


def test_tool_error_has_tool_code_and_message(stage):
    stage.model.will(
        Says("", calls=[Wants("tools__echo", {"message": "x"}), Wants("time__then", {}), Wants("fs__read_file", {})]),
        NOON,
    )
    answer = ask(stage, "?")
    assert answer["toolError"]["tool"] == "time__then"
    assert answer["toolError"]["code"] == "tool_not_found"
    assert answer["toolError"]["message"]
    codes = [(one["result"]["error"] or {}).get("code") for one in answer["toolResults"]]
    assert codes == [None, "tool_not_found", "invalid_args"]


# [SOT] --with-tools and --tool-allow


@pytest.mark.parametrize("args", [["--with-tools", "?"], ["?", "--with-tools"], ["--with-tools=true", "?"]])
def test_with_tools_is_a_flag_wherever_it_stands(stage, args):
    stage.model.will(NOON)
    assert ask(stage, *args)["answer"] == "It is noon."
    assert stage.model.seen[0].tools


def test_with_tools_false_turns_off_every_way_a_tool_can_run(stage):
    stage.model.will(LOOK, NOON)
    answer = ask(stage, "--with-tools=false", "--menu", "run", "--approve", "always", "?")
    assert stage.model.seen[0].tools == []
    assert {one["result"]["error"]["code"] for one in answer["toolResults"]} == {"tool_not_found"}


def test_tool_allow_says_which_tools_are_visible_in_this_session(stage):
    stage.model.will(LOOK, NOON)
    answer = ask(stage, "--tool-allow=time.now,shell.pwd", "?")
    assert stage.model.seen[0].tools == ["time__now", "shell__pwd"]
    assert [one["result"]["ok"] for one in answer["toolResults"]] == [True, False]


def test_an_empty_tool_allow_is_a_usage_error(stage):
    done = cli("ask", "--config", str(stage.config), "--tool-allow=", "?", cwd=stage.folder, stdin="")
    assert done.returncode == 2
    assert not stage.model.seen


def test_tool_allow_stays_with_its_session_until_it_is_given_again(stage):
    for args, visible in (
        (["--tool-allow=time.now,shell.pwd"], ["time__now", "shell__pwd"]),
        ([], ["time__now", "shell__pwd"]),
        (["--tool-allow=time.now"], ["time__now"]),
        (["--with-tools=false"], []),
        ([], ["time__now"]),
    ):
        stage.model.will(NOON)
        ask(stage, "--session", "s", *args, "?")
        assert stage.model.seen[-1].tools == visible
    stage.model.will(NOON)
    ask(stage, "--session", "other", "?")
    assert len(stage.model.seen[-1].tools) > 2


@pytest.mark.parametrize("spelled", ["tools__echo", "tools.echo"])
@pytest.mark.parametrize("menu", ["direct", "run"])
def test_a_tool_that_exists_but_is_not_allowed_is_denied_under_its_own_name(stage, spelled, menu):
    stage.model.will(Says("", calls=[Wants(spelled, {"message": "x"})]), NOON)
    answer = ask(stage, "--tool-allow=time.now", "--menu", menu, "?")
    (only,) = answer["toolResults"]
    assert only["call"]["name"] == answer["toolCalls"][0]["name"] == answer["toolError"]["tool"] == "tools.echo"
    assert (only["result"]["error"]["code"], only["result"]["error"]["reason"]) == ("tool_not_found", "denied")
    assert "tools.echo" in only["result"]["error"]["message"]


def test_the_config_says_what_holds_where_nobody_says_it(stage):
    config = stage.config.read_text()
    stage.config.write_text(config.replace("ask:", "ask:\n  tools: [time.now]\n  with_tools: false"))
    for args, visible in (
        ([], []),
        (["--with-tools"], ["time__now"]),
        (["--with-tools", "--tool-allow=shell.pwd", "--session", "s"], ["shell__pwd"]),
        (["--with-tools", "--session", "s"], ["shell__pwd"]),
    ):
        stage.model.will(NOON)
        ask(stage, *args, "?")
        assert stage.model.seen[-1].tools == visible


# [SOT] within one session it may reuse cached tool results


def test_the_result_of_a_pure_tool_is_used_again_in_the_same_session_and_no_other(stage):
    stage.model.will(LOOK, LOOK, NOON)
    answer = ask(stage, "?", "--session", "a")
    cached = [one["result"]["meta"].get("cached", False) for one in answer["toolResults"]]
    assert cached == [False, False, False, True]  # tools.echo is pure, time.now is not
    stage.model.will(LOOK, NOON)
    assert [one["result"]["meta"].get("cached") for one in ask(stage, "?", "--session", "a")["toolResults"]] == [
        None,
        True,
    ]
    stage.model.will(LOOK, NOON)
    assert [one["result"]["meta"].get("cached") for one in ask(stage, "?")["toolResults"]] == [None, None]


# Decided: the loop limit, the keys


def test_at_the_limit_the_model_is_asked_once_more_without_tools_and_the_output_says_so(stage):
    stage.model.will(LOOK, LOOK, NOON)
    answer = ask(stage, "--max-steps", "2", "?")
    assert answer["answer"] == "It is noon."
    assert answer["limitReached"] is True
    assert answer["steps"] == 3
    assert stage.model.seen[-2].tools
    assert not {"tools", "tool_choice"} & stage.model.seen[-1].body.keys()


def test_eight_steps_by_default(stage):
    stage.model.will(LOOK)
    assert ask(stage, "?")["steps"] == 9


def test_a_missing_key_is_an_error_that_names_it_and_the_auth_command(tmp_path, own_home):
    (tmp_path / "onetool.yaml").write_text("ask: {provider: anthropic}\n")
    done = cli("ask", "--config", "onetool.yaml", "?", cwd=tmp_path, stdin="", env={"ANTHROPIC_API_KEY": ""})
    assert done.returncode == 1
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "onetool auth set anthropic" in done.stderr


def test_auth_set_keeps_the_key_that_ask_uses(stage):
    (stage.folder / "secrets.yaml").unlink()
    kept = cli("auth", "set", "openai", "--config", str(stage.config), cwd=stage.folder, stdin="sk-my-own-key-123\n")
    assert kept.returncode == 0, kept.stderr
    stage.model.will(NOON)
    assert ask(stage, "?")["answer"] == "It is noon."
    assert stage.model.seen[0].headers["authorization"] == "Bearer sk-my-own-key-123"


def test_state_is_beside_the_config(stage):
    stage.model.will(NOON)
    session = ask(stage, "?")["sessionId"]
    assert (stage.folder / "sessions" / f"{session}.jsonl").is_file()
    shutil.rmtree(stage.folder / "sessions")
