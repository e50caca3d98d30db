"""Conversations that go wrong, in a real browser: nobody answers, the server vanishes, a result is huge."""

import json

import pytest
from ask.stand_in import Says, Wants
from browser.harness import asks, harness
from browser.person import Person

SOON = 3  # seconds until silence is no
IMPATIENT = f"""
from onetool.interfaces.rest import ask_approvals
ask_approvals.APPROVAL_S = {SOON}.0
from onetool.__main__ import main
main()
"""
ROWS = 130_000  # of numbers.table: 5 MB


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("chat")
    with harness(folder, **asks(folder, model), command=("-c", IMPATIENT)) as one:
        yield one


def test_a_server_that_vanishes_and_comes_back(browser, model, tmp_path):
    with harness(tmp_path, **asks(tmp_path, model)) as served, browser.page(width=375, height=760) as page:
        person = Person(page, served.url)
        person.open("#/chat").see("Ask anything", "With tools")
        model.will(
            Says("I add them.", calls=[Wants("numbers__add", {"a": 1})]), Says("word " * 500, pieces=500, delay=0.05)
        )
        person.ask("Talk to me.")
        person.click("Approve", role="button")
        person.see("word word")
        served.vanish()
        person.see("The answer was interrupted", "I add them.", "numbers.add", "word word", "Ask again").see_no(
            "The model is working"
        )
        person.ask("Are you there?")
        person.see("Ask again")
        assert person.axe() == []
        assert person.overflow() == []
        served.come_back()
        model.will(Says("Here I am."))
        person.click("Ask again", role="button")
        person.see("Here I am.").see_no("Ask again")
        assert "I add them." in json.dumps(model.seen[-1].body), "what was said before is known"
        person.reload()
        person.see("Talk to me.", "I add them.", "Here I am.")


def test_silence_is_no(chat, model):
    model.will(Says(calls=[Wants("numbers__fail", {"reason": "it ran"})]), Says("Then not."))
    chat.ask("Fail, please.")
    chat.see("The model wants to call numbers.fail", "left; no reply means no")
    chat.see("not approved", "Then not.").see_no("The model wants", "Approve")
    chat.click("numbers.fail")
    chat.see('"reason": "it ran"')
    assert "it ran" not in json.dumps([one for one in model.seen[-1].body["messages"] if one["role"] == "tool"])
    chat.reload()
    chat.see("numbers.fail", "Then not.")


def test_a_result_of_5_mb_is_shown_and_the_page_stays_quick(chat, model, served):
    chat.click("Your question")
    chat.press("+")
    chat.until("__person.focused()[1] === 'Call a tool'")
    chat.write("numbers.table")
    chat.press("Enter")
    chat.type_into("rows", str(ROWS))
    chat.click("Run", role="button")
    chat.see("+numbers.table", "OK")
    chat.see("row 0", "square")
    drawn(chat)
    model.will(Says(calls=[Wants("numbers__table", {"rows": ROWS})]), Says("Many rows."))
    chat.ask("How many?")
    chat.click("Approve", role="button")
    chat.see("Many rows.")
    opened(chat)
    chat.see("row 1")
    drawn(chat)
    assert len(json.dumps(model.seen[-1].body)) < 1_000_000, "the model is not sent all of it"
    chat.reload()
    chat.see("+numbers.table", "Many rows.")
    opened(chat)
    chat.see("The result is large and was stored", "row 1")
    drawn(chat)
    stored = served.api.get("/results").json()["results"]
    assert [one["lines"] for one in stored if one["size"] > 5_000_000][:1] == [ROWS], "it can be read page by page"
    chat.press("Escape")
    chat.open("#/results").see("- {name: row 0")


def opened(chat):
    """The last call, with its arguments and its result."""
    chat.until("document.querySelector('[role=log] details') !== null")
    chat.page.click("[role=log] > details:last-of-type summary")


def drawn(chat):
    """Little of it is in the page, and who writes on is not held up."""
    assert chat.value("__person.all('*').length") < 5000
    assert chat.value("document.body.innerText.length") < 200_000
    chat.type_into("Your question", "and")
    assert chat.reads("Your question") == "and"
    assert chat.overflow() == []
