"""`onetool ask` as programs run it: piped, with a model that stands in for a real one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from ask.stand_in import Fails, Hangs, Says, Wants
from click.testing import CliRunner
from helpers import each, start, until
from interfaces.cli.ask.shop import ALLOW
from interfaces.cli.ask.shop import shop as shop  # a fixture

from onetool.ask.sessions import store
from onetool.interfaces.cli import cli as root
from onetool.interfaces.cli.ask import ask, runner

PRICE = Wants("shop__price", {"item": "tea"})
BUY = Wants("shop__buy", {"item": "tea", "card_token": "4242"})
FIXED = {"toolCalls", "toolResults", "toolError", "sessionContextUpdated"}
MORE = {"answer", "sessionId", "provider", "model", "usage", "steps"}


def test_standard_output_has_the_answer_and_nothing_else(shop):
    """In a process of its own, with something piped in."""
    shop.model.will(Says("Let me look.", calls=[PRICE]), Says("Tea is 3."))
    done = shop.ask_in_process("What is tea?", stdin="+ a line\n")
    assert (done.returncode, done.stdout) == (0, "Tea is 3.\n")
    said, called = done.stderr.splitlines()
    assert said == "Let me look."
    assert called.startswith('shop.price(item="tea") → ok, ')
    first = shop.model.seen[0]
    assert first.tools == ["shop__price", "shop__buy"]
    told = json.dumps(first.messages)
    for part in ("What is tea?", "stdin", "+ a line"):
        assert part in told
    assert not shop.model.refused


def test_json_is_one_object_and_a_session_goes_on(shop):
    shop.model.will(Says(calls=[PRICE]), Says("Tea is 3."), Says("That is all."))
    done = shop.ask("What is tea?", "--json", "--new-session", "--session", "tea")
    first = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert set(first) >= FIXED | MORE
    assert (first["answer"], first["sessionId"], first["steps"], first["error"]) == ("Tea is 3.", "tea", 2, None)
    assert first["toolResults"][0]["result"]["data"] == 3
    assert (first["provider"], first["model"]) == ("openai", "stand-in")
    assert first["usage"]["input"] == 22
    assert not any(seen.stream for seen in shop.model.seen)
    second = shop.ask("--session", "last", "--no-stream", "--temperature=0.5", "--system", "Be brief.", "What else?")
    assert second.stdout == "That is all.\n"
    asked = shop.model.seen[-1]
    assert (asked.stream, asked.body["temperature"]) == (False, 0.5)
    assert "Tea is 3." in json.dumps(asked.messages)
    assert "Be brief." in json.dumps(asked.messages)


def test_what_may_change_things_is_not_run_in_a_pipe_unless_allowed(shop):
    course = Says(calls=[BUY]), Says("Done.")
    shop.model.will(*course)
    done = shop.ask("Buy tea.")
    assert done.stdout == "Done.\n"
    first, second, hint = done.stderr.splitlines()
    assert first.startswith('shop.buy(item="tea", card_token="***") → failed: ')
    assert second == "Not run: shop.buy"
    assert "--approve always" in hint
    shop.model.will(*course)
    assert "→ ok" in shop.ask("--approve", "always", "Buy tea.").stderr
    assert "bought tea" in json.dumps(shop.model.seen[-1].messages)


def test_without_tools_and_with_what_is_attached(shop):
    (shop.folder / "notes.txt").write_text("a note")
    done = shop.ask("--with-tools=false", "-f", "notes.txt", "-f", "-", "Review this.", stdin="+ a line\n")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello.\n", "")
    (seen,) = shop.model.seen
    assert seen.tools == []
    told = json.dumps(seen.messages)
    for part in ("Review this.", "notes.txt", "a note", "stdin", "+ a line"):
        assert part in told
    shop.ask("--with-tools", "-", stdin="What is this?")
    assert "What is this?" in json.dumps(shop.model.seen[-1].messages)
    assert shop.model.seen[-1].tools


def test_what_fails_is_told_in_words_or_as_json(shop):
    shop.model.will(Fails(401, "Incorrect API key provided.", "invalid_api_key"))
    done = shop.ask("q")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert "onetool auth set openai" in done.stderr
    shop.model.will(Says(calls=[PRICE]), Fails(400, "No."))
    done = shop.ask("q", "--json")
    assert (done.exit_code, done.stderr) == (1, "")
    answer = json.loads(done.stdout)
    assert answer["answer"] is None
    assert answer["error"]["reason"] == "bad_request"
    assert len(answer["toolResults"]) == 1


@each("options", [[], ["--json"]])
def test_retries_and_the_limit_of_steps_are_told_on_standard_error(options, shop):
    shop.model.will(Fails(503, retry_after=0.01), Says(calls=[PRICE]), Says("Tea is 3."))
    done = shop.ask("What is tea?", "--max-steps", "1", *options)
    assert done.exit_code == 0
    again, *_, limit = (line for line in done.stderr.splitlines() if "shop.price" not in line)
    assert "503" in again
    assert "trying again in" in again
    assert "the limit of 1 steps is reached" in limit


def started(shop, *args):
    return start(
        "ask",
        ALLOW,
        *args,
        cwd=shop.folder,
        env={**os.environ, **shop.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly_and_the_session_is_kept(shop, which, code):
    shop.model.will(Says(calls=[PRICE]), Hangs(30))
    process = started(shop, "--session", "tea", "What is tea?")
    assert process.stderr.readline() == "new session tea\n"
    assert "shop.price" in process.stderr.readline()
    process.send_signal(which)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (code, "")
    assert err == 'Interrupted. The session was saved; continue: onetool ask --session tea "…"\n'
    if which == signal.SIGINT:
        shop.model.will(Says("Tea is 3."))
        assert shop.ask("--session", "tea", "Well?").stdout == "Tea is 3.\n"
        assert not shop.model.refused


def test_json_is_printed_also_where_it_is_interrupted(shop):
    shop.model.will(Says(calls=[PRICE]), Hangs(30))
    process = started(shop, "--json", "--session", "tea", "What is tea?")
    until(lambda: len(shop.model.seen) >= 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    told = json.loads(out)
    assert (told["answer"], told["sessionId"], told["error"]["reason"]) == (None, "tea", "interrupted")
    assert told["error"]["hints"] == ['continue: onetool ask --session tea "…"']
    assert len(told["toolResults"]) == 1


def test_json_is_printed_also_where_nothing_has_begun(shop, monkeypatch):
    def slow(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("onetool.interfaces.cli.ask.open_app", slow)
    done = shop.ask("q", "--json")
    assert done.exit_code == 130
    assert json.loads(done.stdout)["error"]["reason"] == "interrupted"


def test_state_that_is_taken_away_meanwhile_is_told(shop):
    def answer(_):
        for file in shop.harness.app.config.home.glob("state.db*"):
            file.unlink()
        return Says("Bye.")

    shop.model.will(answer)
    done = shop.ask("q", "--session", "tea", "--new-session")
    assert (done.exit_code, "Bye." in done.stdout) == (1, True)
    assert "the session tea can't be written: it was deleted" in done.stderr


def test_a_session_in_use_is_waited_for(shop, monkeypatch):
    held, found_in_use, busy_error = Event(), Event(), store._busy_error
    monkeypatch.setattr(store, "_busy_error", lambda *args: found_in_use.set() or busy_error(*args))

    async def hold():
        async with shop.harness.app.sessions.turn("tea"):
            held.set()
            await asyncio.to_thread(found_in_use.wait, 10)

    holder = Thread(target=lambda: asyncio.run(hold()))
    holder.start()
    assert held.wait(10)
    done = shop.ask("--session", "tea", "a")
    holder.join(10)
    assert (done.exit_code, done.stdout) == (0, "Hello.\n")
    assert "in use" in done.stderr
    assert "waiting for it" in done.stderr


def test_a_session_that_is_new_is_told_and_what_is_like_it(shop):
    assert shop.ask("q", "--session", "trip").stderr == "new session trip\n"
    assert shop.ask("q", "--session", "tripp").stderr == "new session tripp; did you mean trip?\n"
    for args in (("--session", "trip"), ("--session", "last"), ("--session", "trap", "--new-session"), ()):
        assert shop.ask("q", *args).stderr == ""
    assert shop.ask("q", "--json", "--session", "tripe").stderr == ""
    (id,) = (one.id for one in shop.harness.app.sessions.list() if one.id[0] == "2")
    mistyped = f"{id[:-1]}{'x' if id[-1] != 'x' else 'y'}"
    done = shop.ask("q", "--session", mistyped)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"there is no session {mistyped!r}; did you mean {id}?" in done.stderr


def test_there_is_something_to_go_on_with_where_something_was_said(shop, monkeypatch):
    monkeypatch.setattr(runner, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    shop.model.will(Fails(404, "No such model.", "model_not_found"))
    assert "is kept" not in shop.ask("q", "--session", "tea").stderr
    shop.model.will(Says(calls=[PRICE]), Fails(400, "No."))
    told = shop.ask("q", "--session", "tea").stderr.splitlines()
    assert told[-1] == 'The conversation was saved; continue: onetool ask --session tea "…"'


# Wrong usage, before anything is opened


@each(
    ("args", "told"),
    [
        (["q", "--tool-allow", ""], "Must not be empty"),
        (["q", "--max-steps", "0"], "--max-steps"),
        (["q", "--temperature", "nan"], "expected a number from 0 to 2"),
        (["q", "--approve", "ask"], "needs a terminal to ask at"),
        (["q", "--provider", "nobody"], "openai"),
        (["q", "--provider", "opnai"], "Did you mean openai?"),
        (["q", "--session", "my trip"], "'my trip' can't be the name of a session"),
        (["q", "--session", "last", "--new-session"], "stands for the most recently used session"),
        (["- list of things"], '--: onetool ask -- "- list of things"'),
        (["-5 degrees: is it cold?"], '--: onetool ask -- "-5 degrees: is it cold?"'),
        (["--modle", "x", "What is it?"], "--modle"),
        (["what", "is", "it?"], "into quotes"),
        ([""], "The question is empty"),
        (["-f", "no-such-file", "q"], "no-such-file"),
        ([], "Give the question"),
        (["q", "--model", "\udcff"], "--model is not UTF-8"),
        (["q", "--session", "a\udcff"], "--session is not UTF-8"),
        (["q", "--tool-allow", "time.now,\udcff"], "--tool-allow is not UTF-8"),
        (["q", "--system", "\udcff"], "--system is not UTF-8"),
        (["\udcff"], "The question is not UTF-8"),
    ],
)
def test_wrong_usage(args, told):
    result = CliRunner().invoke(ask, args)
    assert result.exit_code == 2
    assert told in result.output


def test_sessions_are_completed(shop):
    from click.shell_completion import ShellComplete

    shop.ask("q", "--session", "tea")
    config = str(shop.harness.config)
    complete = ShellComplete(root, {}, "onetool", "_ONETOOL_COMPLETE")
    found = complete.get_completions(["--config", config, "ask", "--session"], "")
    assert [one.value for one in found] == ["last", "tea"]
    (file,) = complete.get_completions(["ask", "-f"], "no")
    assert (file.value, file.type) == ("no", "file")


def test_help_loads_little(tmp_path):
    code = """import sys
sys.argv = ["onetool", "ask", "--help"]
import onetool.__main__ as command
try:
    command.main()
except SystemExit:
    print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not set(done.stdout.splitlines()[-1].split()) & {"asyncio", "rich", "yaml", "jsonschema_rs", "http", "ssl"}
