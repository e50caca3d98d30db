"""Ways through a conversation that are easily forgotten: code that calls, going away and coming back, reloading."""

import json

import pytest
from ask.stand_in import Says, Wants
from browser.harness import METEO, asks, harness
from browser.person import Person
from helpers import until

ADD = Wants("numbers__add", {"a": 1, "b": 2})


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("chat")
    with harness(folder, **asks(folder, model)) as one:
        yield one


def test_calls_of_code_are_approved_and_show_what_came_of_them(browser, model, tmp_path):
    given = asks(tmp_path, model)
    given["ask"]["menu"] = "run"
    with harness(tmp_path, **given) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.open("#/chat").see("Ask anything", "With tools")
        model.will(Says(calls=[Wants("run", {"code": "numbers.add(a=20, b=3)"})]), Says("It is 23."))
        person.ask("Add.")
        person.see("The model wants to call numbers.add").click("Approve", role="button")
        person.see("It is 23.").see_no("Failed", "not approved", "The connection ended")
        badges = "[...document.querySelectorAll('[role=log] summary .badge')].map((one) => one.textContent)"
        assert person.value(badges) == ["OK", "OK"]
        person.click("numbers.add")
        person.see("Result", "23")
        assert person.faults() == []


def test_who_goes_away_comes_back_to_what_waits(chat, model):
    model.will(Says(calls=[ADD]), Says("Three."))
    chat.ask("Add, while I look elsewhere.")
    chat.see("The model wants to call")
    chat.open("#/tools").see("numbers.add")
    assert chat.attribute("Waiting for your approval", "role") == "img", "Chat has a mark"
    chat.press("g c")
    chat.see("The model wants to call", "Waiting for your approval")
    chat.click("Approve", role="button")
    chat.see("Three.").see_no("Waiting for your approval")


@pytest.mark.parametrize("how", ["Deny", "Stop"])
def test_a_call_that_never_ran_reads_the_same_after_a_reload(chat, model, how):
    model.will(Says("Let me add.", calls=[ADD]), Says("Then not."))
    chat.ask("Add them, if I may.")
    chat.see("The model wants to call")
    chat.click(how, role="button")
    seen = ["Then not."] if how == "Deny" else ["Stopped. The part received", "Ask again"]
    for _ in range(2):
        chat.see("Let me add.", "not approved", *seen).see_no("Failed", "not known", "was interrupted")
        if how == "Stop":
            chat.see_no("0 + 0 tokens")
        chat.reload()
    model.will(Says("Once more."))
    if how == "Stop":
        chat.click("Ask again", role="button")
        chat.see("Once more.")


def test_what_is_deleted_can_be_brought_back_as_long_as_that_is_offered(chat, model, served):
    model.will(Says("Here."), Says("There."))
    chat.ask("Delete me.")
    chat.see("Here.")
    chat.click("Delete Delete me.")
    chat.see("Deleted: Delete me.", "Ask anything")
    chat.value("new Promise((done) => setTimeout(done, 8500))")
    assert "Delete me." in titles(served), "it is still there"
    chat.click("Undo", role="button")
    chat.click("Delete me.", role="link")
    chat.see("Here.")
    chat.click("Delete Delete me.")
    chat.see("Deleted: Delete me.")
    chat.click("Close", role="button")
    until(lambda: "Delete me." not in titles(served))
    chat.open("#/chat").see("Ask anything")
    assert "Delete Delete me." not in chat.names("button")
    chat.ask("Leave me.")
    chat.see("There.").click("Delete Leave me.")
    chat.see("Deleted: Leave me.")
    chat.reload()
    until(lambda: "Leave me." not in titles(served))


def titles(served):
    return [one["title"] for one in served.api.get("/ask/sessions").json()["sessions"]]


def test_files_that_fit_are_sent_and_others_are_refused_at_once(chat, model, tmp_path):
    large, more = tmp_path / "photo.png", tmp_path / "second.png"
    large.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(4_500_000))
    more.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1_000_000))
    model.will(Says("A black one."))
    chat.attach("input[type=file]", large, more)
    chat.see("photo.png", "second.png is too large")
    chat.ask("What do you see?")
    chat.see("A black one.")


def test_a_refused_question_is_still_there_to_be_changed(chat):
    chat.forgive("400")
    chat.type_into("Model", "x" * 201)
    chat.ask("Do you hear me?")
    chat.see("/model")
    assert chat.reads("Your question") == "Do you hear me?"
    chat.see_no("Ask again")
    chat.type_into("Model", "")


def test_a_form_that_is_closed_or_has_to_wait_calls_nothing(chat, model, served):
    chat.until("__person.focused()[1] === 'Your question'", "begin to write at once")
    chat.click("Call a tool", role="button")
    chat.until("__person.focused()[1] === 'Call a tool'")
    chat.write("numbers.table")
    chat.press("Enter")
    chat.type_into("rows", "3")
    model.will(Says("word " * 200, pieces=200, delay=0.05))
    chat.press("Escape")
    chat.until("__person.focused()[1] === 'Your question'", "the field has the focus again")
    chat.ask("Talk.")
    chat.see("word word")
    chat.click("Call a tool", role="button")
    chat.write("numbers.table")
    chat.press("Enter")
    chat.see("Wait for the answer to be complete")
    assert chat.reads("rows") == "3"
    chat.press("Escape")
    chat.click("Stop", role="button")
    chat.see("Stopped. The part received")


def test_the_form_of_a_call_takes_ctrl_enter(chat):
    chat.click("Call a tool", role="button")
    chat.until("__person.focused()[1] === 'Call a tool'")
    chat.write("numbers.table")
    chat.press("Enter")
    chat.type_into("rows", "2")
    chat.press("Control+Enter")
    chat.see("+numbers.table", "row 1")


def test_ones_own_question_is_scrolled_to(chat, model):
    log = "document.querySelector('[role=log]')"
    model.will(Says("word\n\n" * 200), Says("Again."))
    chat.ask("Talk a lot.")
    chat.see("stand-in (openai)")
    chat.value(f"void {log}.scrollTo({{top: 0}})")
    chat.see("Jump to the end")
    chat.ask("And now?")
    chat.see("Again.")
    chat.until(f"{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 80")


def test_the_form_of_a_tool_that_leaves_its_arguments_to_its_function(chat, served):
    served.put_tool(METEO, "bare", {"type": "python", "pythonImpl": {"func": "numbers.table"}})
    chat.reload()
    chat.click("Call a tool", role="button")
    chat.until("__person.focused()[1] === 'Call a tool'")
    chat.write("meteo.bare")
    chat.press("Enter")
    chat.see("Rows with a name and a square.")
    chat.type_into("rows", "2")
    chat.press("Escape")


def test_the_model_is_switched_and_a_tool_called_by_click(chat, model, served):
    chat.see("their list costs about")
    chat.type_into("Model", "other-stand-in")
    model.will(Says("I am another."))
    chat.ask("Who are you?")
    chat.see("I am another.", "other-stand-in (openai)")
    assert model.seen[-1].body["model"] == "other-stand-in"
    chat.type_into("Model", "")
    chat.click("With tools")
    chat.see_no("their list costs about")
    model.will(Says("I have none."))
    chat.ask("And your tools?")
    chat.see("I have none.")
    assert "tools" not in model.seen[-1].body
    chat.click("With tools")
    chat.click("Call a tool", role="button")
    chat.write("numbers.table")
    chat.press("Enter")
    chat.type_into("rows", "2")
    chat.click("Run", role="button")
    chat.see("+numbers.table", "row 1")
    chat.until("__person.focused()[1] === 'Your question'", "the field has the focus again")
    taken = """
      window.taken = [];
      const make = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blob.text().then((text) => taken.push(text)); return make(blob); };
    """
    chat.value(f"(() => {{ {taken} }})()")
    chat.choose("Export", "JSON")
    chat.until("taken.length === 1")
    chat.choose("Export", "Markdown")
    chat.until("taken.length === 2")
    as_json, as_markdown = chat.value("taken")
    assert [one["text"] for one in json.loads(as_json)["messages"] if one["role"] == "assistant"] == [
        "I am another.",
        "I have none.",
    ]
    assert "I am another." in as_markdown
    assert "numbers.table" in as_markdown
