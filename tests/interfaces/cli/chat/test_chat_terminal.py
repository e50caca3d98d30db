"""`onetool chat` at a terminal: lines are edited, and Ctrl-C stops an answer."""

import signal
from contextlib import contextmanager

import pytest
from ask.stand_in import Hangs, Says, Wants
from interfaces.cli.ask.shop import ALLOW, Terminal
from interfaces.cli.ask.shop import shop as shop  # a fixture

BUY = Wants("shop__buy", {"item": "tea", "card_token": "4242"})
PROMPT = "\n> "
SLOW = """
from asyncio import sleep

async def wait() -> str:
    'It takes long.'
    print('begun')
    await sleep(20)
"""


@contextmanager
def chat(shop, *args, **env):
    with Terminal(["chat", ALLOW, *args], shop.folder, {**shop.env, "TERM": "dumb", **env}) as terminal:
        terminal.until("> ")
        yield terminal


def test_a_plain_terminal(shop):
    shop.model.will(Says("Tea is ", calls=[Wants("shop__price", {"item": "tea"})]), Says("3."))
    with chat(shop, "--session", "tea") as terminal:
        terminal.type(b"What is tea?\n")
        assert "\n3.\nstand-in (openai)" in terminal.until(PROMPT)
        terminal.type(b"+shop.price item=tea\n")
        assert "\n3\n" in terminal.until(PROMPT)
        terminal.type(b"\x04")
        assert terminal.ended() == 0
    assert b"\x1b" not in terminal.shown
    assert "continue: onetool ask" not in terminal.seen
    assert "Continue: onetool chat --session tea" in terminal.seen


def test_ctrl_c_stops_the_answer_and_not_the_chat(shop):
    shop.model.will(Says("Let me look.", calls=[Wants("shop__price", {"item": "tea"})]), Hangs(30), Says("Yes."))
    with chat(shop) as terminal:
        terminal.type(b"What is tea?\n")
        terminal.until("→ ok")
        terminal.type(b"\x03")
        assert "Stopped.\n" in terminal.until(PROMPT)
        terminal.type(b"half of a que")
        terminal.until("que")
        terminal.interrupt(PROMPT)
        terminal.type(b"Sure?\n")
        assert "Yes.\n" in terminal.until(PROMPT)
        terminal.type(b"\x04")
        assert terminal.ended() == 0
    assert "What is tea?" in str(shop.model.seen[-1].messages)
    assert "half" not in str(shop.model.seen[-1].messages)
    assert "Traceback" not in terminal.seen


def test_ctrl_c_stops_a_call_and_the_session_is_the_same(shop):
    (shop.folder / "shop.py").write_text(SLOW)
    with chat(shop, "--tool-allow", "shop.wait") as terminal:
        terminal.type(b"+shop.wait\n")
        terminal.until("begun")
        terminal.type(b"\x03")
        assert "Stopped.\n" in terminal.until(PROMPT)
        terminal.type(b"/session\n")
        (session,) = [one.id for one in shop.harness.app.sessions.list()]
        assert session in terminal.until(PROMPT)
        terminal.type(b"\x04")
        assert terminal.ended() == 0


def test_a_person_decides_in_place(shop):
    shop.model.will(Says(calls=[BUY]), Says("Bought."), Says(calls=[BUY]), Says("Well."))
    with chat(shop) as terminal:
        for answer, outcome in ((b"y\n", "→ ok"), (b"n\n", "→ failed")):
            terminal.type(b"Buy tea.\n")
            assert "The model wants to call shop.buy" in terminal.until("[n]: ")
            terminal.type(answer)
            assert outcome in terminal.until(PROMPT)
        terminal.type(b"\x04")
        assert terminal.ended() == 0


@pytest.mark.parametrize("is_busy", [True, False])
def test_it_can_be_ended_from_outside(shop, is_busy):
    shop.model.will(Says("Let me look.", calls=[Wants("shop__price", {"item": "tea"})]), Hangs(30))
    with chat(shop) as terminal:
        if is_busy:
            terminal.type(b"What is tea?\n")
            terminal.until("→ ok")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert "Traceback" not in terminal.seen
