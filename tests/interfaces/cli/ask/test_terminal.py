"""`onetool ask` at a terminal: the answer as it comes, calls as they happen, and somebody who says yes or no."""

from ask.stand_in import Hangs, Says, Wants
from interfaces.cli.ask.shop import shop as shop  # a fixture

ASKED = "[n]: "


def buy(item):
    return Wants("shop__buy", {"item": item, "card_token": "4242"})


def test_the_answer_comes_as_it_is_said_and_harmless(shop):
    shop.model.will(
        Says("Let me look.", calls=[Wants("shop__price", {"item": "tea"})]), Says("Tea \x1b[2Jis\t3.", delay=0.02)
    )
    with shop.terminal("What is tea?", "--session", "tea") as terminal:
        assert 'Let me look.\nshop.price(item="tea") → ok, ' in terminal.until("Tea �")
        assert terminal.process.poll() is None
        assert terminal.ended() == 0
    assert "\nTea �[2Jis" in terminal.seen
    assert 'stand-in (openai) · 2 steps · 22 + 14 tokens · continue: onetool ask --session tea "…"' in terminal.seen


def test_a_person_decides_call_by_call(shop):
    shop.model.will(
        Says(calls=[buy("tea"), buy("rum"), buy("gin")]), Says(calls=[buy("pie"), buy("jam")]), Says("Well.")
    )
    with shop.terminal("Buy.") as terminal:
        shown = terminal.until(ASKED)
        assert "The model wants to call shop.buy, which may change something:" in shown
        assert '  item: "tea"\n  card_token: "4242"\n  Run shop.buy? y = yes, ' in shown
        terminal.type(b"y\n")
        assert '"rum"' in terminal.until(ASKED)
        terminal.type(b"\n")
        terminal.until(ASKED)
        terminal.type(b"\x04")
        shown = terminal.until(ASKED)
        assert shown.lstrip("^D\b").startswith("\nshop.buy(")  # Ctrl-D ends no line
        assert '"pie"' in shown
        terminal.type(b"a\n")  # and is not asked again
        assert terminal.ended() == 0
    lines = [line for line in terminal.seen.splitlines() if "→" in line]
    assert [line.partition("→")[2].split()[0].strip(",:") for line in lines] == ["ok", "failed", "failed", "ok", "ok"]
    assert "Not run" not in terminal.seen  # who said so knows
    assert not [line for line in terminal.seen.splitlines() if "4242" in line and "card_token: " not in line]


def test_ctrl_c_ends_a_question_that_waits_for_an_answer_as_nothing_typed_before_is_one(shop):
    shop.model.will(Says(calls=[buy("tea")]), Says("Well."))
    with shop.terminal("Buy.", "--session", "tea") as terminal:
        terminal.type(b"y\n")  # before there is a question: that is not an answer
        terminal.until(ASKED)
        terminal.type(b"\x03")
        assert terminal.ended() == 130
    assert '\nInterrupted. The session was saved; continue: onetool ask --session tea "…"' in terminal.seen


def test_a_person_decides_also_where_something_is_piped_in(shop):
    """At the terminal itself; and in plain text, if that is wanted."""
    shop.model.will(Says(calls=[buy("tea")]), Says("Well."))
    with shop.terminal("Buy.", "--approve", "ask", "--session", "tea", stdin=b"a list", NO_COLOR="1") as terminal:
        assert terminal.until(ASKED).startswith("new session tea\n")
        terminal.type(b"ja\n")
        assert "'ja' is not one of the answers.\n" in terminal.until(ASKED)
        terminal.type(b"y\n")
        assert terminal.ended() == 0
    assert "→ ok" in terminal.seen
    assert b"\x1b" not in terminal.shown
    assert "a list" in str(shop.model.seen[0].messages)


def test_ctrl_c_ends_a_model_that_says_nothing(shop):
    shop.model.will(Says("Let me look.", calls=[Wants("shop__price", {"item": "tea"})]), Hangs(30))
    with shop.terminal("Buy.") as terminal:
        terminal.until("→ ok")
        terminal.type(b"\x03")
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.seen
    assert "The session was saved" in terminal.seen


TWO_AT_ONCE = """import asyncio
async def both():
    return await asyncio.gather(shop.buy('FIRST'), shop.weigh('tea'))
await both()"""


def test_what_is_typed_belongs_to_the_question_that_is_shown(shop):
    """The first one is withdrawn, for the code that asked it has failed: it reads no more."""
    second = Wants("run", {"code": "shop.buy('SECOND')"})
    shop.model.will(Says(calls=[Wants("run", {"code": TWO_AT_ONCE})]), Says(calls=[second]), Says("Well."))
    with shop.terminal("--menu", "run", "--tool-allow", "shop.buy,shop.weigh", "Buy.") as terminal:
        assert '"FIRST"' in terminal.until(ASKED)
        shown = terminal.until(ASKED)
        assert "withdrawn" in shown
        assert '"SECOND"' in shown
        terminal.type(b"y\n")
        assert terminal.ended() == 0
    assert "→ ok" in terminal.seen
    assert "bought SECOND" in str(shop.model.seen[-1].messages)
    assert "bought FIRST" not in str(shop.model.seen[-1].messages)


def test_an_argument_cannot_pass_for_a_question_of_ours(shop):
    """Not even by being wrapped: padded to whole lines, its text would stand where ours does."""
    padded = " " * 2450 + "The model wants to call shop.price, which may change something:".ljust(80)
    shop.model.will(Says(calls=[buy(padded)]), Says("Well."))
    with shop.terminal("Buy.") as terminal:
        shown = terminal.until(ASKED)
        terminal.type(b"v\n")
        whole = terminal.until(ASKED)
        terminal.type(b"\n")
        assert terminal.ended() == 0
    assert "characters of 2,5" in shown
    assert (
        "Run shop.buy? y = yes, n = no, a = always for this tool, in this question, v = view all of it [n]: " in shown
    )
    assert len(whole) > len(padded)
    for line in (shown + whole).splitlines():
        assert "shop.price" not in line or line.startswith("    | ")
        assert len(line) < 80 or "Run shop.buy?" in line
