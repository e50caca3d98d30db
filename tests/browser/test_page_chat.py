"""Conversations in a real browser, with a model that a script stands for: asked, approved, broken off, kept."""

import json

import pytest
from ask.stand_in import Breaks, Fails, Says, Wants
from browser.harness import asks, harness
from browser.person import Person
from helpers import until

MARKDOWN = """## Found

There are **two** files, and `numbers.add` gives *3*.

1. First
   - nested

| name | size |
|---|---|
| movie.bin | 90 |

```python
print("<b>")
```

See [the page](https://example.com/a?x=1).
"""
HOSTILE = """<img src=x onerror=hit=1> <script>hit=1</script> <b onclick=hit=1>bold</b>

![seen](https://tracker.example/p.png?secret=1) ![unseen](javascript:hit=1)

[run](javascript:hit=1) [data](data:text/html,<script>hit=1</script>) [bank](https://bank.example@evil.example/)

[zero\u200bwidth](https://example.com/\u202egpj) \u202eturned

| <img src=x onerror=hit=1> |
|---|
| [cell](javascript:hit=1) |

```<img src=x>
</pre><img src=x onerror=hit=1>
```
"""
MARKUP = "<img src=x onerror=hit=1>\u202egpj\u200b"
SHOWN = "<img src=x onerror=hit=1>⟨U+202E⟩gpj⟨U+200B⟩"
NESTED = "> " * 3000 + "deep " + "**a *b " * 3000 + "- " * 2000 + "[" * 5000


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("chat")
    with harness(folder, **asks(folder, model)) as one:
        yield one


def sessions(served):
    return {one["title"]: one["id"] for one in served.api.get("/ask/sessions").json()["sessions"]}


def sideways(person):
    """What can only be seen by scrolling to the side: on a phone nobody does."""
    wide = (
        "[...document.querySelectorAll('main, .main, .log, .write')].filter((one) => one.scrollWidth > one.clientWidth)"
    )
    return person.overflow() + person.value(f"{wide}.map((one) => one.className || one.tagName)")


APPROVE = "[...document.querySelectorAll('button')].filter((one) => one.textContent.trim() === 'Approve')"
CLICK_NEXT = f"""(() => {{
  window.born = [];
  const first = {APPROVE}[0];
  new MutationObserver(() => {{
    const [one] = {APPROVE}.filter((button) => button !== first && !window.born.includes(button));
    if (one) {{ window.born.push(one); window.wasDisabled = one.disabled; one.click(); }}
  }}).observe(document.body, {{childList: true, subtree: true}});
  first.click();
}})()"""


def test_a_conversation_from_the_first_question_to_its_end(chat, model, served):
    wanted = {"a": 1, "b": 2}
    model.will(
        Says("I add them.", calls=[Wants("numbers__add", wanted)]), Says(MARKDOWN, pieces=20, usage=(300, 48, 12))
    )
    chat.ask("What is one and two?")
    chat.see("The model wants to call numbers.add", "5:00 left")
    assert [len(model.seen), chat.text().count("\n3\n")] == [1, 0], "nothing runs before it is approved"
    chat.click("Approve", role="button")
    chat.see("311 + 55 tokens", "2 steps", "stand-in (openai)").see_no("The model wants")
    shown = [
        chat.value(f"document.querySelectorAll('.markdown {tag}').length") for tag in ("strong", "li", "td", "pre")
    ]
    assert shown == [1, 2, 2, 1]
    link = "document.querySelector('.markdown a')"
    assert chat.value(f"[{link}.href, {link}.rel]") == ["https://example.com/a?x=1", "noopener noreferrer"]
    chat.see("the page", "(https://example.com/a?x=1)")
    chat.click("numbers.add", role=None)
    chat.see('"a": 1', "Result")

    chat.reload()
    chat.see("What is one and two?", "I add them.", "numbers.add", "Found", "311 + 55 tokens")
    chat.type_into("Your question", "")
    chat.press("+")
    chat.until("__person.focused()[1] === 'Call a tool'")
    chat.write("numbers tab")
    chat.press("Enter")
    chat.type_into("rows", "3")
    chat.click("Run", role="button")
    chat.see("+numbers.table", "OK")
    assert chat.reads("Your question") == "", "the sign that opened the list is gone"
    model.will(Says("It has three rows."))
    chat.ask("How many rows?")
    chat.see("It has three rows.")
    assert "row 2" in json.dumps(model.seen[-1].body), "the model reads what the person has called"

    chat.click("Rename What is one and two?")
    chat.type_into("Title", "Sums")
    chat.press("Enter")
    until(lambda: "Sums" in sessions(served))
    chat.click("Delete Sums")
    chat.see("Deleted: Sums", "Ask anything")
    chat.click("Undo", role="button", nth=-1)  # the one of the name goes by itself, soon
    chat.click("Sums", role="link")
    chat.see("It has three rows.")
    assert "Sums" in sessions(served)
    chat.choose("Export", "Markdown")
    done = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/export?format=markdown'))"
    chat.until(f"{done}.some((one) => one.responseStatus === 200)", "export it")


def test_denied_broken_off_and_stopped(chat, model):
    model.will(Says(calls=[Wants("numbers__fail", {"reason": "x" * 90_000 + "END"})]), Says("Then not."))
    chat.ask("Fail, please.")
    chat.see("The model wants to call numbers.fail", "xEND")
    chat.click("Deny", role="button")
    chat.see("Then not.", "not approved")
    model.will(Breaks(after=3))
    chat.ask("And this?")
    chat.see("This is as far", "Ask again")
    model.will(Says("Whole again."))
    chat.click("Ask again", role="button")
    chat.see("This is as far", "Whole again.").see_no("Ask again")
    model.will(Says("word " * 300, pieces=300, delay=0.05))
    chat.ask("Talk.")
    chat.see("word word")
    chat.click("Stop", role="button")
    chat.see("Stopped. The part received", "word word", "Ask again")
    model.will(Says("Enough said."))
    chat.ask("And now?")
    chat.see("Enough said.")


def test_hostile_markdown_is_text(chat, model):
    model.will(Says(HOSTILE))
    chat.ask("Say something.")
    chat.see(
        "<img src=x onerror=hit=1>",
        "<script>hit=1</script>",
        "[run](javascript:hit=1)",
        "⟨U+202E⟩turned",
        "zero⟨U+200B⟩width",
    )
    assert chat.value("window.hit") is None
    assert chat.value("document.querySelectorAll('[role=log] :is(img, script, b)').length") == 0
    links = chat.value("[...document.querySelectorAll('.markdown a')].map((one) => one.href)")
    assert links == ["https://tracker.example/p.png?secret=1", "https://example.com/%E2%80%AEgpj"]
    chat.see("(https://tracker.example/p.png?secret=1)")
    model.will(Says(NESTED))
    chat.ask("Deeper.")
    chat.see("deep", "Ask")
    chat.until("__person.text().split('11 + 7 tokens').length === 3", "see the second answer complete")


def test_names_arguments_results_titles_and_files_are_text(chat, model, served, tmp_path):
    file = tmp_path / f"{MARKUP}.txt"
    file.write_text(MARKUP)
    chat.attach("input[type=file]", file)
    calls = [Wants("numbers__fail", {"reason": MARKUP}), Wants("<b>no_such_tool</b>", {"<i>": MARKUP})]
    model.will(Says(calls=calls, thinking=MARKUP), Fails(400, message=MARKUP))
    chat.ask(f"Title {MARKUP}")
    chat.see("The model wants to call numbers.fail", SHOWN)
    nothing_ran(chat)
    chat.click("Approve", role="button")
    chat.see("<b>no_such_tool</b>", "Ask again")
    chat.value("document.querySelectorAll('[role=log] details').forEach((one) => (one.open = true))")
    chat.see("<i>", "Failed")
    nothing_ran(chat)
    assert chat.text().count(SHOWN) >= 5  # the title twice, the question, its file, arguments, the refusal
    chat.reload()
    chat.see(f"Title {SHOWN}", "<b>no_such_tool</b>")
    nothing_ran(chat)
    title = next(one for one in sessions(served) if one.startswith("Title "))
    assert served.api.delete(f"/ask/sessions/{sessions(served)[title]}").status_code == 204


def nothing_ran(chat):
    assert chat.value("window.hit") is None
    assert chat.value("document.querySelectorAll('main :is(script, b, i, [onerror])').length") == 0
    assert not set(chat.text()) & {"\u202e", "\u200b"}


def test_files_go_with_a_question(chat, model, tmp_path):
    picture, notes, other = tmp_path / "plan.png", tmp_path / "notes.md", tmp_path / "data.bin"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    notes.write_text("buy tea")
    other.write_bytes(b"\xff\xfe\x00")
    model.will(Says("Tea it is."))
    chat.attach("input[type=file]", picture, notes, other)
    chat.see("plan.png", "notes.md", "data.bin is neither a picture")
    chat.ask("What do I buy?")
    chat.see("Tea it is.")
    sent = json.dumps(model.seen[-1].body)
    assert "buy tea" in sent
    model.will(Says("Jam, too."))
    (tmp_path / "more.txt").write_text("and jam")
    chat.drop("Conversation", tmp_path / "more.txt")
    chat.see("more.txt")
    chat.ask("And now?")
    chat.see("Jam, too.")
    assert "and jam" in json.dumps(model.seen[-1].body)
    assert "data:image/png;base64,iVBORw0KGgo=" in sent


def test_a_file_and_a_picture_are_pasted(chat, model):
    model.will(Says("Milk, and a plan."))
    chat.click("Your question")
    chat.paste(("list.txt", "text/plain", b"buy milk"), ("plan.png", "image/png", b"\x89PNG\r\n\x1a\n"))
    chat.see("list.txt", "plan.png")
    assert chat.value("document.querySelector('form img').src") == "data:image/png;base64,iVBORw0KGgo="
    chat.paste(("other.bin", "application/octet-stream", b"\xff\xfe\x00"))
    chat.see("other.bin is neither a picture")
    chat.paste_text("What do I buy?")
    assert chat.reads("Your question") == "What do I buy?", "a text that is pasted is a text"
    chat.press("Enter")
    chat.see("Milk, and a plan.")
    sent = json.dumps(model.seen[-1].body)
    assert "buy milk" in sent
    assert "data:image/png;base64,iVBORw0KGgo=" in sent
    assert "other.bin" not in sent
    chat.until("document.querySelector('.user img') !== null", "see the picture with the question")
    chat.reload()
    chat.see("list.txt", "plan.png")


def test_nothing_stands_in_the_way_of_anybody(browser, served, model):
    for scheme in ("light", "dark"):
        with browser.page(width=375, height=700, scheme=scheme) as page:
            person = Person(page, served.url)
            person.open("#/chat").see("Ask anything", "With tools")
            assert not person.axe()
            model.will(Says("", calls=[Wants("numbers__add", {"a": 1})]), Says(MARKDOWN))
            person.ask(f"What is one and two and three, in {scheme}?")
            person.see("The model wants to call")
            assert not person.axe()
            assert sideways(person) == []
            person.click("Approve", role="button")
            person.see("Found", "2 steps")
            assert not person.axe()
            assert sideways(person) == []
            person.click("Conversations", role="button")
            person.see(f"What is one and two and three, in {scheme}?", "New conversation")
            assert not person.axe()
            assert sideways(person) == []
            assert person.faults() == []


def test_without_a_model_there_is_one_next_step(browser, tmp_path):
    with harness(tmp_path) as bare, browser.page(width=1280, height=800) as page:
        person = Person(page, bare.url)
        person.open("#/chat").see("No model is set up", "onetool auth set openai")
        assert person.value("document.querySelector('form button[type=submit]').disabled")
        assert person.faults() == []


def test_a_second_click_does_not_approve_a_call_that_nobody_has_seen(chat, model):
    """What comes next is drawn under the mouse: for a moment it takes no click, and never the second one of two."""
    model.will(Says(calls=[Wants("numbers__add", {"a": 1}), Wants("numbers__add", {"a": 666})]), Says("Both are done."))
    chat.ask("Two calls, please")
    chat.see("The model wants to call numbers.add")
    until(lambda: chat.value(f"{APPROVE}.some((one) => !one.disabled)"))
    chat.value(f"{APPROVE}[0].dispatchEvent(new MouseEvent('click', {{bubbles: true, detail: 2}}))")
    chat.see("The model wants to call numbers.add")
    chat.value(CLICK_NEXT)
    until(lambda: chat.value("window.born.length") == 1)
    chat.see("The model wants to call numbers.add", "666")
    assert chat.value("window.wasDisabled") is True
    chat.click("Approve", role="button")
    chat.see("Both are done.")
