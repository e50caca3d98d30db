"""`onetool chat` in a pipe: each line is a turn, and standard output has answers and values alone."""

import json

import pytest
from ask.stand_in import Fails, Says, Wants
from click.testing import CliRunner
from helpers import cli
from interfaces.cli.ask.shop import ALLOW
from interfaces.cli.ask.shop import shop as shop  # a fixture

from onetool.interfaces.cli import cli as root

PRICE = Wants("shop__price", {"item": "tea"})
BUY = Wants("shop__buy", {"item": "tea", "card_token": "4242"})


def chat(shop, *lines, args=()):
    """In this process."""
    done = CliRunner(env=shop.env).invoke(root, ["chat", ALLOW, *args], input="".join(f"{line}\n" for line in lines))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def said(shop, request=-1):
    return json.dumps(shop.model.seen[request].messages, ensure_ascii=False)


def test_each_line_is_a_turn_of_one_session(shop):
    """In a process of its own."""
    shop.model.will(Says("Let me look.", calls=[PRICE]), Says("Tea is 3."), Says("Yes."))
    done = cli("chat", ALLOW, cwd=shop.folder, env=shop.env, stdin="What is tea?\n\nSure?\n")
    assert (done.returncode, done.stdout) == (0, "Tea is 3.\nYes.\n")
    assert "> " not in done.stdout
    assert 'shop.price(item="tea") → ok' in done.stderr
    assert "Tea is 3." in said(shop)
    assert len(shop.harness.app.sessions.list()) == 1


def test_a_call_of_ones_own_is_part_of_the_conversation(shop):
    shop.model.will(Says("Three."))
    done = chat(shop, "+shop.price item=tea", "+buy item='green tea' card_token=4242", "What is it?")
    assert (done.exit_code, done.stdout) == (0, "3\nbought green tea\nThree.\n")
    asked = said(shop)
    for part in ("The person called a tool: shop.price", "<result id=", "bought green tea", "What is it?"):
        assert part in asked
    assert "4242" not in asked
    assert [message["role"] for message in shop.model.seen[0].messages] == ["system", "user"]
    assert not shop.model.refused


def test_what_a_tool_prints_in_a_pipe_is_data(shop):
    assert json.loads(chat(shop, "+fs.list_dir path=.", args=["--tool-allow=fs.list_dir"]).stdout)[0]["path"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("+shop.prize item=tea", "there is no tool 'shop.prize'; did you mean shop.price?"),
        ("+shop.price itm=tea", "itm"),
        ("+shop.price tea", "'tea' is not key=value; it takes item"),
        ("+time.now", "not allowed"),
        ("/hlep", "there is no /hlep; did you mean /help?"),
        ("/session ../x", "can't be the name of a session"),
        ("/session 20261115-191200-k3f9", "there is no session '20261115-191200-k3f9'"),
        ("/model olama x", "did you mean ollama?"),
    ],
)
def test_what_is_wrong_is_told_and_the_chat_goes_on(shop, line, words):
    done = chat(shop, line, "+shop.price item=tea")
    assert done.stdout.endswith("3\n")
    assert words in done.stderr
    assert done.exit_code == 1


def test_a_question_that_fails_does_not_end_it(shop):
    shop.model.will(Fails(401, "no such key"), Says("Yes."))
    done = chat(shop, "What is tea?", "Sure?")
    assert (done.exit_code, done.stdout) == (1, "Yes.\n")
    assert "Error: " in done.stderr


def test_in_a_pipe_nobody_approves_unless_told(shop):
    shop.model.will(Says(calls=[BUY]), Says("No."), Says(calls=[BUY]), Says("Bought."))
    done = chat(shop, "Buy tea.")
    assert "Not run: shop.buy" in done.stderr
    done = chat(shop, "Buy tea.", args=["--approve", "always"])
    assert (done.exit_code, done.stdout) == (0, "Bought.\n")
    assert "4242" not in done.stderr


def test_no_tools_are_no_tools_for_anybody(shop):
    done = chat(shop, "+shop.price item=tea", args=["--with-tools=false"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there are no tools" in done.stderr


def test_texts_of_several_lines_and_questions_that_look_like_something_else(shop):
    shop.model.will(*[Says("Well.")] * 6)
    chat(shop, '"""one', "", '+two"""', "three\\", "four", " +five is", ' """', " /six", '"""', '"""seven"""', '"""end')
    texts = [
        next(one["content"] for one in reversed(seen.messages) if one["role"] == "user") for seen in shop.model.seen
    ]
    assert texts == ["one\n\n+two", "three\nfour", "+five is", " /six", "seven", "end"]


def test_what_is_no_text_and_what_is_too_long(shop):
    lines = b"\xff\xfe\n" + b"x" * (1024**2 + 5) + b"\n+shop.price item=tea\n"
    done = CliRunner(env=shop.env).invoke(root, ["chat", ALLOW], input=lines)
    assert (done.exit_code, done.stdout) == (1, "3\n")
    assert "not UTF-8" in done.stderr
    assert "larger than 1 MiB" in done.stderr
    assert not shop.model.seen


def test_tools_are_listed_and_found(shop):
    done = chat(shop, "/tools", "/tools what something costs")
    every, _, found = done.stdout.partition("+shop.buy item=… [card_token=…]  Buy it.\n")
    assert every == "+shop.price item=…  What it costs.\n"
    assert "+shop.price item=…" in found


def test_another_model(shop):
    shop.model.will(Says("Yes."), Says("Yes."))
    done = chat(shop, "/model", "Sure?", "/model m2", "/model", "Sure?", "/model")
    assert done.stdout.splitlines() == [
        "stand-in (openai)",
        "Yes.",
        "m2 (openai)",
        "m2 (openai)",
        "Yes.",
        "m2 (openai)",
    ], done.stderr
    assert [seen.body["model"] for seen in shop.model.seen] == ["stand-in", "m2"]


def test_sessions_are_listed_chosen_and_begun(shop):
    shop.model.will(*[Says("Yes.")] * 4)
    turns = "/session", "/session tea", "First?", "/session new", "Second?", "/session tea", "Third?", "/session"
    done = chat(shop, *turns)
    lines = done.stdout.splitlines()
    assert lines[0] == lines[3] == "a new session, from the next question on"
    assert lines[1] == "tea: a new session"
    assert lines[5] == "tea: 1 question so far"
    assert lines[-1] == "tea"
    assert "First?" not in said(shop, 1)
    assert "First?" in said(shop, 2)
    assert "Second?" not in said(shop, 2)
    listed = chat(shop, "/session list", "/session last", "/session", "/quit", "Never?").stdout.splitlines()
    assert listed[0] == "tea\tFirst?"
    assert listed[1].endswith("\tSecond?")
    assert listed[2:] == ["tea: 2 questions so far", "tea"]
    shop.ask("--session", "tea", "Fourth?")
    assert "Third?" in said(shop)


def test_a_call_alone_begins_a_session_that_ask_goes_on_with(shop):
    shop.model.will(Says("Three."))
    assert chat(shop, "+shop.price item=tea", args=["--new-session", "--session", "tea"]).exit_code == 0
    shop.ask("--session", "tea", "What is it?")
    assert "The person called a tool: shop.price" in said(shop)
    shown = CliRunner(env=shop.env).invoke(root, ["sessions", "show", "tea", "--json"]).stdout
    assert json.loads(shown)["messages"][0]["type"] == "called"


def test_help_names_every_command(shop):
    told = chat(shop, "/help").stdout
    for word in ("/help", "/tools [WORDS]", "/model [NAME]", "/session [NAME|list|new]", "/quit", "+TOOL KEY=VALUE"):
        assert word in told
