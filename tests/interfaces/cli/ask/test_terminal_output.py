"""What is shown of a question's course: on a terminal, and in pipes."""

import asyncio
import io
import re
import sys

import pytest
from helpers import FakeClock, until_async

from onetool import ToolCall, ToolResult, ToolSpec
from onetool.ask.events import Answer, CallEnded, CallStarted, Done, Notice, Started, Text, Thinking
from onetool.ask.messages import Usage
from onetool.core.call import Declined, ToolError
from onetool.interfaces.cli import ask
from onetool.interfaces.cli.ask import runner, terminal
from onetool.interfaces.cli.ask.terminal import Approver, Screen
from onetool.interfaces.cli.ask.wording import call_line, readable

NOW = ToolCall("1", "time.now", {})
READ = ToolCall("2", "fs.read_file", {"path": "a.txt\x1b[2J", "maxBytes": 5})
OK = ToolResult(ok=True, data=1, meta={"duration_ms": 12.4})
FAILED = ToolResult(ok=False, error=ToolError(code="execution_error", message="there is no a.txt\nmore"))


class Stream(io.StringIO):
    def __init__(self, is_terminal, encoding="utf-8"):
        super().__init__()
        self.isatty = lambda: is_terminal
        self.is_like = encoding

    @property
    def encoding(self):
        return self.is_like


@pytest.fixture
def shows(monkeypatch):
    """What is seen of these events on standard output and standard error, which are terminals or not."""

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def show(*events, out=True, err=True, encoding="utf-8"):
        streams = Stream(out, encoding), Stream(err)
        monkeypatch.setattr(terminal, "stdout", lambda: streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        screen = Screen()
        for event in events:
            screen.show(event)
        return streams[0].getvalue(), streams[1].getvalue()

    return show


def done(text="It is noon.", **more):
    fields = {"session_id": "s1", "provider": "ollama", "model": "m", "steps": 2, "usage": Usage(input=1200, output=1)}
    return Done(answer=Answer(answer=text, **{**fields, **more}))


COURSE = [
    Started(session_id="s1", is_new=True, provider="ollama", model="m"),
    Thinking(text="hm", step=1),
    Thinking(text="hm", step=1),
    Text(text="Let me ", step=1),
    Text(text="look.", step=1),
    CallStarted(call=NOW),
    CallEnded(call=NOW, result=OK),
    Text(text="It is ", step=2),
    Text(text="noon.", step=2),
    done(),
]


def test_a_terminal_shows_all_of_it_as_it_comes(shows):
    out, err = shows(*COURSE)
    assert out == "Let me look.\nIt is noon.\n"
    lines = err.splitlines()
    assert "thinking …" in lines[0]
    assert "\x1b[36mtime.now()\x1b[0m\x1b[32m → ok, 12.4 ms" in lines[1]
    assert 'm (ollama) · 2 steps · 1,200 + 1 token · continue: onetool ask --session s1 "…"' in lines[2]
    assert len(lines) == 3


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(shows, monkeypatch, name, value):
    coloured = shows(*COURSE)[1]
    monkeypatch.setenv(name, value)
    plain = shows(*COURSE)[1]
    assert "\x1b" in coloured
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


@pytest.mark.parametrize("can_ask", [True, False])
def test_who_could_be_asked_is_told_how(shows, monkeypatch, can_ask):
    monkeypatch.setattr(terminal, "can_be_asked", lambda: can_ask)
    assert ("--approve ask asks you here" in shows(done(denied=("fs.write_file",)))[1]) == can_ask


def test_a_pipe_gets_the_answer_alone(shows):
    out, err = shows(*COURSE, out=False, err=False)
    assert out == "It is noon.\n"
    assert err == "Let me look.\ntime.now() → ok, 12.4 ms\n"
    assert shows(*COURSE, out=False)[0] == out


def test_calls_at_the_same_time_have_a_line_each(shows):
    course = [
        CallStarted(call=NOW),
        CallStarted(call=READ),
        CallEnded(call=NOW, result=OK, is_cached=True),
        CallEnded(call=READ, result=FAILED),
        done(),
    ]
    _, err = shows(*course, out=False, err=False)
    assert err == (
        'time.now() → ok, as before\nfs.read_file(path="a.txt\\u001b[2J", maxBytes=5) → failed: there is no a.txt\n'
    )
    plain = shows(*course)[1].replace("\x1b[36m", "").replace("\x1b[32m", "").replace("\x1b[31m", "")
    assert plain.replace("\x1b[0m", "").splitlines()[:4] == [
        "time.now()",
        'fs.read_file(path="a.txt\\u001b[2J", maxBytes=5)',
        "time.now() → ok, as before",
        'fs.read_file(path="a.txt\\u001b[2J", maxBytes=5) → failed: there is no a.txt',
    ]


def test_a_word_in_between_has_a_line_of_its_own(shows):
    out, err = shows(Text(text="Half", step=1), Notice(text="wait\x1b[2J"), Text(text="way", step=1), done("Halfway"))
    assert out == "Half\nway\n"
    assert "wait�[2J" in err
    assert shows(CallStarted(call=NOW), Notice(text="wait"), CallEnded(call=NOW, result=OK))[1].count("\n") == 3


def test_what_a_model_says_does_nothing_to_a_terminal_and_is_whole_in_a_pipe(shows):
    said = "a\x1b[31m\ttab\r\n1\u202f000\u00a0€ 東\u3000京 👩\u200d💻 \u202e"
    course = [Text(text=said, step=1), done(said)]
    assert shows(*course)[0] == "a�[31m\ttab\n1\u202f000\u00a0€ 東\u3000京 👩\u200d💻 �\n"
    assert shows(*course, out=False)[0] == f"{said}\n"
    assert shows(*course, out=False, encoding="ascii")[0].startswith("a\x1b[31m\ttab\r\n1?000?? ??? ")
    assert readable("plain\n") == "plain\n"


def test_what_was_not_let_run_is_told_with_what_to_do(shows):
    end = done(denied=("fs.write_file",), hints=("--approve always lets it",), stop="length")
    out, err = shows(end, out=False, err=False)
    assert out == "It is noon.\n"
    assert err.splitlines()[1:] == ["Not run: fs.write_file", "--approve always lets it"]
    assert "cut off" in err.splitlines()[0]


def test_an_answer_that_was_not_streamed_is_shown(shows):
    assert shows(done("Late."))[0] == "Late.\n"
    assert shows(Text(text=" ", step=3), done("Late."))[0] == " \nLate.\n"


def test_many_small_pieces_are_written_a_few_at_once(monkeypatch):
    """And none is lost: what comes last is written without anything behind it, and before anything else."""

    class Counting(Stream):
        flushed = 0

        def flush(self):
            self.flushed += 1

    stream = Counting(True)
    monkeypatch.setattr(terminal, "stdout", lambda: stream)
    monkeypatch.setattr(sys, "stderr", Stream(True))

    async def speak():
        screen = Screen()
        for _ in range(20_000):
            screen.show(Text(text="ab", step=1))
        screen.show(Text(text="!", step=1))
        await until_async(lambda: stream.getvalue().endswith("!"))
        screen.show(Text(text="1", step=1))
        screen.show(Text(text="2", step=1))
        screen.break_line()  # as an interrupt does
        assert stream.getvalue() == "ab" * 20_000 + "!12\n"
        return screen

    clock = FakeClock()
    monkeypatch.setattr(terminal, "monotonic", clock)
    screen = clock.run(speak())
    assert stream.flushed <= 5
    screen.break_line()


def test_long_arguments_are_cut():
    assert call_line(ToolCall("1", "run", {"code": "x\n" * 100})) == 'run(code="' + "x\\n" * 17 + "x\\…)"
    assert call_line(ToolCall("1", "x" * 5000, {})) == "x" * 79 + "…()"


# A model that says nothing


def test_who_waits_for_a_silent_model_is_told_twice_but_not_while_tools_run(monkeypatch):
    monkeypatch.setattr(runner, "NOTICE_AFTER", (0.02, 0.06))
    said = []

    async def told(heard, event, times):
        said.clear()
        heard.on_event(event)
        async with asyncio.timeout(10):
            await until_async(lambda: len(said) >= times)
        await asyncio.sleep(0.08)  # and no further
        return [*said]

    async def listen():
        heard, words = runner.SilenceNotice(said.append), "waiting for m (ollama) …"
        assert await told(heard, COURSE[0], 2) == [words, words]
        assert await told(heard, CallStarted(call=NOW), 0) == []
        assert await told(heard, CallEnded(call=NOW, result=OK), 2) == [words, words]
        heard.on_event(COURSE[0])
        heard.end()
        await asyncio.sleep(0.05)
        assert said == [words, words]

    asyncio.run(listen())


# Approvals

SPEC = ToolSpec(name="shop.buy", description="d", input_schema={"type": "object", "properties": {}})


class Typist:
    def __init__(self, *answers):
        self.answers, self.asked, self.choices = list(answers), [], []

    async def ask(self, question):
        self.asked.append(question.message)
        self.choices.append(question.schema["properties"]["answer"]["title"])
        answer = self.answers.pop(0)
        if answer is None:
            raise Declined("cancel")
        return {"answer": answer}


def decided(typist, *calls):
    async def decide():
        approver = Approver(typist, lambda value: value, lambda: None)
        return list(await asyncio.gather(*(approver(call, SPEC) for call in calls)))

    return asyncio.run(decide())


def test_yes_no_and_always():
    call = ToolCall("1", "shop.buy", {})
    assert decided(Typist("y", "n", "N", "YES", None), *[call] * 5) == [True, False, False, True, False]
    typist = Typist("n", "a")
    assert decided(typist, *[call] * 4) == [False, True, True, True]
    assert len(typist.asked) == 2


def test_what_is_no_answer_is_asked_again_but_not_for_ever(capsys):
    call = ToolCall("1", "shop.buy", {})
    assert decided(Typist("perhaps", "?", "y"), call) == [True]
    assert "'perhaps' is not one of the answers." in capsys.readouterr().err
    typist = Typist("j", "o", "s", "x", "y")
    assert decided(typist, call) == [False]
    assert typist.answers == ["y"]


def test_arguments_are_shown_in_full_whatever_they_are_called():
    args = {
        "item": "x" * 500,
        "api_key": "sk-1",
        "note": "one\n  Run shop.buy? y\x1b[2J",
        "more": {"password": "p", "n": 1},
    }
    typist = Typist("n")
    decided(typist, ToolCall("1", "shop.buy", args))
    assert typist.asked == [
        "The model wants to call shop.buy, which may change something:\n"
        '  item:\n    | "' + ("x" * 72 + "\n    | x") * 6 + "x" * 62 + '"\n'
        '  api_key: "sk-1"\n'
        "  note:\n    | one\n    |   Run shop.buy? y\\x1b[2J\n"
        '  more: {"password": "p", "n": 1}'
    ]
    assert typist.choices == ["Run shop.buy? y = yes, n = no, a = always for this tool, in this question"]


def test_only_what_is_known_to_be_a_secret_is_masked():
    typist = Typist("n")
    approver = Approver(typist, lambda args: {**args, "item": "***"}, lambda: None)
    asyncio.run(approver(ToolCall("1", "shop.buy", {"item": "known", "token": "rm -rf /"}), SPEC))
    assert typist.asked[0].endswith('  item: "***"\n  token: "rm -rf /"')


def test_a_tool_that_looks_like_another_one_is_marked():
    spec = ToolSpec(name="shop.bu\u0443", description="d", input_schema={"type": "object", "properties": {}})
    typist = Typist("n", "n")
    approver = Approver(typist, lambda args: args, lambda: None, lambda: ["shop.buy", "shop.sell", spec.name])
    asyncio.run(approver(ToolCall("1", spec.name, {}), spec))
    assert typist.asked[0].splitlines()[1:] == [
        "  ! letters of several alphabets in bu\\u0443",
        "  ! this is not shop.buy, which looks like it: 'shop.bu\\u0443'",
        "  (no arguments)",
    ]
    asyncio.run(approver(ToolCall("1", "shop.buy", {}), SPEC))
    assert "  ! this is not shop.bu\u0443, which looks like it: 'shop.buy'" in typist.asked[1]


def test_all_of_what_is_long_is_shown_to_who_wants_to_see_it():
    call = ToolCall("1", "shop.buy", {"note": "first" + "x" * 5_000_000 + "last"})
    typist = Typist("v", "y")
    assert decided(typist, call) == [True]
    short, whole = typist.asked
    assert len(short) < 2000
    assert len(whole) > 5_000_000
    assert [one.endswith("v = view all of it") for one in typist.choices] == [True, False]


# What stands here and elsewhere


def test_the_choices_are_those_that_there_are():
    import typing

    from onetool.config.model import AskConfig

    assert typing.get_args(typing.get_type_hints(AskConfig)["menu"]) == ask.MENUS
