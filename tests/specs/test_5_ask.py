"""5-calls-and-ask.md: a test for each [SOT] line about `ask`, with the decisions that go with it; by command line."""

import json

import pytest
from ask.harness import Harness
from ask.stand_in import Fails, Says, Wants
from helpers import cli, session_text

LOOK = Says("Let me look.", calls=[Wants("time__now", {}), Wants("tools__echo", {"message": "hi"})])
NOON = Says("It is noon.")
FIELDS = {"toolCalls", "toolResults", "toolError", "sessionContextUpdated"}


@pytest.fixture
def harness(tmp_path):
    with Harness(tmp_path) as harness:
        yield harness
        assert not harness.model.refused


def ask(harness, *args, stdin=None):
    """One object, as `--json` gives it."""
    done = cli("ask", "--config", str(harness.config), *args, "--json", cwd=harness.folder, stdin=stdin or "")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


# [SOT] `ask` becomes a minimal tool-calling loop


def test_tools_are_on_by_default_and_the_visible_list_is_in_the_models_context(harness):
    harness.model.will(NOON)
    ask(harness, "What time is it?")
    visible = {spec.name.replace(".", "__") for spec in harness.app.tools()}
    assert set(harness.model.seen[0].tools) == visible
    assert "time__now" in visible


def test_calls_are_executed_in_order_and_results_go_back_to_the_model_which_writes_the_answer(harness):
    harness.model.will(LOOK, NOON)
    answer = ask(harness, "What time is it?")
    assert answer["answer"] == "It is noon."
    first, second = harness.model.seen
    assert second.messages[: len(first.messages)] == first.messages
    assert [one["role"] for one in second.messages[-3:]] == ["assistant", "tool", "tool"]
    assert "hi" in second.messages[-1]["content"]
    assert [one["name"] for one in answer["toolCalls"]] == ["time.now", "tools.echo"]
    assert all(one.keys() == {"id", "name", "args", "source"} for one in answer["toolCalls"])


def test_results_are_added_to_the_sessions_context(harness):
    harness.model.will(LOOK, NOON)
    first = ask(harness, "What time is it?", "--session", "talk")
    assert first["sessionContextUpdated"] is True
    harness.model.will(Says("Still noon."))
    ask(harness, "And now?", "--session", "talk")
    roles = [one["role"] for one in harness.model.seen[-1].messages]
    assert roles[-6:] == ["user", "assistant", "tool", "tool", "assistant", "user"]


# [SOT] `ask` output always has these fields


def test_the_four_fields_are_always_there(harness):
    harness.model.will(NOON)
    answer = ask(harness, "What time is it?")
    assert {key: answer[key] for key in FIELDS} == {
        "toolCalls": [],
        "toolResults": [],
        "toolError": None,
        "sessionContextUpdated": False,
    }
    assert {"answer", "sessionId", "provider", "model", "usage", "steps"} <= answer.keys()


def test_they_are_there_when_it_fails(harness):
    harness.model.will(LOOK, Fails(400, "no such thing"))
    done = cli("ask", "--config", str(harness.config), "?", "--json", cwd=harness.folder, stdin="")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert answer["answer"] is None
    assert answer["error"]["message"]
    assert answer.keys() >= FIELDS
    assert len(answer["toolResults"]) == 2
    assert answer["sessionContextUpdated"] is True


def test_tool_results_have_call_and_result_in_call_order_matched_by_id_alone(harness):
    same = [Wants("tools__echo", {"message": word}, id="same") for word in ("a", "b", "c")]
    harness.model.will(Says("", calls=same), NOON)
    answer = ask(harness, "?")
    ids = [one["id"] for one in answer["toolCalls"]]
    assert len(set(ids)) == 3
    assert [one["call"]["id"] for one in answer["toolResults"]] == ids
    assert [one["result"]["data"] for one in answer["toolResults"]] == ["a", "b", "c"]
    assert answer["toolResults"][0]["call"].keys() >= {"id", "name", "args", "source"}
    assert answer["toolResults"][0]["result"].keys() >= {"ok", "data", "error", "meta"}


def test_tool_error_has_tool_code_and_message(harness):
    harness.model.will(
        Says("", calls=[Wants("tools__echo", {"message": "x"}), Wants("time__then", {}), Wants("fs__read_file", {})]),
        NOON,
    )
    answer = ask(harness, "?")
    assert answer["toolError"]["tool"] == "time__then"
    assert answer["toolError"]["code"] == "tool_not_found"
    assert answer["toolError"]["message"]
    codes = [(one["result"]["error"] or {}).get("code") for one in answer["toolResults"]]
    assert codes == [None, "tool_not_found", "invalid_args"]


# [SOT] --with-tools and --tool-allow


@pytest.mark.parametrize("args", [["--with-tools", "?"], ["?", "--with-tools"], ["--with-tools=true", "?"]])
def test_with_tools_is_a_flag_wherever_it_stands(harness, args):
    harness.model.will(NOON)
    assert ask(harness, *args)["answer"] == "It is noon."
    assert harness.model.seen[0].tools


def test_with_tools_false_turns_off_every_way_a_tool_can_run(harness):
    harness.model.will(LOOK, NOON)
    answer = ask(harness, "--with-tools=false", "--menu", "run", "--approve", "always", "?")
    assert harness.model.seen[0].tools == []
    assert {one["result"]["error"]["code"] for one in answer["toolResults"]} == {"tool_not_found"}


def test_tool_allow_says_which_tools_are_visible_in_this_session(harness):
    harness.model.will(LOOK, NOON)
    answer = ask(harness, "--tool-allow=time.now,shell.pwd", "?")
    assert harness.model.seen[0].tools == ["time__now", "shell__pwd"]
    assert [one["result"]["ok"] for one in answer["toolResults"]] == [True, False]


def test_an_empty_tool_allow_is_a_usage_error(harness):
    done = cli("ask", "--config", str(harness.config), "--tool-allow=", "?", cwd=harness.folder, stdin="")
    assert done.returncode == 2
    assert not harness.model.seen


def test_tool_allow_stays_with_its_session_until_it_is_given_again(harness):
    for args, visible in (
        (["--tool-allow=time.now,shell.pwd"], ["time__now", "shell__pwd"]),
        ([], ["time__now", "shell__pwd"]),
        (["--tool-allow=time.now"], ["time__now"]),
        (["--with-tools=false"], []),
        ([], ["time__now"]),
    ):
        harness.model.will(NOON)
        ask(harness, "--session", "s", *args, "?")
        assert harness.model.seen[-1].tools == visible
    harness.model.will(NOON)
    ask(harness, "--session", "other", "?")
    assert len(harness.model.seen[-1].tools) > 2


@pytest.mark.parametrize("spelled", ["tools__echo", "tools.echo"])
@pytest.mark.parametrize("menu", ["direct", "run"])
def test_a_tool_that_exists_but_is_not_allowed_is_denied_under_its_own_name(harness, spelled, menu):
    harness.model.will(Says("", calls=[Wants(spelled, {"message": "x"})]), NOON)
    answer = ask(harness, "--tool-allow=time.now", "--menu", menu, "?")
    (only,) = answer["toolResults"]
    assert only["call"]["name"] == answer["toolCalls"][0]["name"] == answer["toolError"]["tool"] == "tools.echo"
    assert (only["result"]["error"]["code"], only["result"]["error"]["reason"]) == ("tool_not_found", "denied")
    assert "tools.echo" in only["result"]["error"]["message"]


def test_the_config_says_what_holds_where_nobody_says_it(harness):
    config = harness.config.read_text()
    harness.config.write_text(config.replace("ask:", "ask:\n  tools: [time.now]\n  with_tools: false"))
    for args, visible in (
        ([], []),
        (["--with-tools"], ["time__now"]),
        (["--with-tools", "--tool-allow=shell.pwd", "--session", "s"], ["shell__pwd"]),
        (["--with-tools", "--session", "s"], ["shell__pwd"]),
    ):
        harness.model.will(NOON)
        ask(harness, *args, "?")
        assert harness.model.seen[-1].tools == visible


# [SOT] within one session it may reuse cached tool results


def test_the_result_of_a_pure_tool_is_used_again_in_the_same_session_and_no_other(harness):
    harness.model.will(LOOK, LOOK, NOON)
    answer = ask(harness, "?", "--session", "a")
    cached = [one["result"]["meta"].get("cached", False) for one in answer["toolResults"]]
    assert cached == [False, False, False, True]  # tools.echo is pure, time.now is not
    harness.model.will(LOOK, NOON)
    assert [one["result"]["meta"].get("cached") for one in ask(harness, "?", "--session", "a")["toolResults"]] == [
        None,
        True,
    ]
    harness.model.will(LOOK, NOON)
    assert [one["result"]["meta"].get("cached") for one in ask(harness, "?")["toolResults"]] == [None, None]


# Decided: the loop limit, the keys


def test_at_the_limit_the_model_is_asked_once_more_without_tools_and_the_output_says_so(harness):
    harness.model.will(LOOK, LOOK, NOON)
    answer = ask(harness, "--max-steps", "2", "?")
    assert answer["answer"] == "It is noon."
    assert answer["limitReached"] is True
    assert answer["steps"] == 3
    assert harness.model.seen[-2].tools
    assert not {"tools", "tool_choice"} & harness.model.seen[-1].body.keys()


def test_eight_steps_by_default(harness):
    harness.model.will(LOOK)
    assert ask(harness, "?")["steps"] == 9


def test_a_missing_key_is_an_error_that_names_it_and_the_auth_command(tmp_path, own_home):
    (tmp_path / "onetool.yaml").write_text("ask: {provider: anthropic}\n")
    done = cli("ask", "--config", "onetool.yaml", "?", cwd=tmp_path, stdin="", env={"ANTHROPIC_API_KEY": ""})
    assert done.returncode == 1
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "onetool auth set anthropic" in done.stderr


def test_auth_set_keeps_the_key_that_ask_uses(harness):
    (harness.folder / "secrets.yaml").unlink()
    kept = cli(
        "auth", "set", "openai", "--config", str(harness.config), cwd=harness.folder, stdin="sk-my-own-key-123\n"
    )
    assert kept.returncode == 0, kept.stderr
    harness.model.will(NOON)
    assert ask(harness, "?")["answer"] == "It is noon."
    assert harness.model.seen[0].headers["authorization"] == "Bearer sk-my-own-key-123"


def test_state_is_beside_the_config(harness):
    harness.model.will(NOON)
    session = ask(harness, "?")["sessionId"]
    assert "It is noon." in session_text(harness.folder, session)
