"""Somebody tries code on the page: names are offered, mistakes are underlined, calls are shown while they happen."""

import threading

from browser.harness import METEO, harness
from browser.person import Person
from upstream import Reply

HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"
UNDERLINED = "[...document.querySelectorAll('main *')].flatMap((one) => one.shadowRoot ? [...one.shadowRoot.querySelectorAll('.cm-lintRange-error')] : []).map((one) => one.textContent)"  # noqa: E501
CODE = "Python code"


def test_code_is_completed_checked_run_and_saved_as_a_tool(person, served):
    person.open("#/tools")
    person.see("numbers.add")
    person.press("g p")
    person.see("Nothing has run yet")
    person.click(CODE)
    person.write("num")
    person.see("numbers")
    person.press("Enter")
    person.write(".ad")
    person.see("Add two numbers")
    person.press("Enter")
    person.see("a=", "the first one")
    person.press("Enter")
    person.write('"x"')
    person.see("Line 1:")
    person.until(f"{UNDERLINED}.length > 0")
    assert person.reads(CODE) == 'numbers.add(a="x")'

    person.type_into(CODE, 'print("begun")\nfor n in range(3):\n    numbers.add(a=n)\nnumbers.table(rows=2)')
    person.see_no("Line 1:")
    person.until(f"{UNDERLINED}.length === 0")
    assert person.axe() == []
    person.press("Control+Enter")
    person.see("begun", "numbers.table", "row 1", "Table")
    assert len(person.names("listitem")) >= 4
    assert person.axe() == []

    person.type_into(CODE, "numbers.add(a=1)\nnumbers.fail(reason='no luck')")
    person.press("Control+Enter")
    person.see("Failed in line 2.", "no luck")
    assert person.value(UNDERLINED) == ["numbers.fail(reason='no luck')"]

    person.reload()
    person.see("numbers.fail(reason='no luck')")
    person.click("Save as a tool", role="button")
    person.see("New script", "Unsaved draft")
    assert "bundle=meteo" in person.place
    assert "numbers.fail(reason='no luck')" in person.reads("Code")


def test_a_run_is_stopped_and_what_others_say_is_text(person, served):
    told, waits = threading.Event(), threading.Event()

    def slow(request):
        told.set()
        waits.wait(20)
        return Reply(headers={"Content-Type": "application/json"}, body=b'{"sky": "late"}')

    person.open("#/play")
    person.type_into(CODE, f'print({HOSTILE!r})\nmeteo.forecast(city="Rome")')
    served.upstream.say(slow)
    try:
        person.press("Control+Enter")
        assert told.wait(15)
        person.see("<img src=x onerror=alert(1)>⟨U+202E⟩gpj", "meteo.forecast", "running")
        person.click("Stop")
        person.see("outcome unknown", "Stopped.").see_no("Nothing has run yet")
        person.see_no("runs\n")
    finally:
        waits.set()
    person.type_into(CODE, '{"rows": ["x" * 1000] * 50}')
    person.press("Control+Enter")
    person.see("This is the beginning", "stored as")
    person.click("Open it in Results", role="link")
    person.see("Result of code", "rows:")


def test_a_server_that_goes_away_while_code_runs_is_told(browser, tmp_path):
    told, waits = threading.Event(), threading.Event()

    def slow(request):
        told.set()
        waits.wait(20)
        return Reply()

    with harness(tmp_path) as served, browser.page(width=375, height=760) as page:
        served.upstream.say(slow)
        person = Person(page, served.url)
        person.open("#/play")
        person.type_into(CODE, 'print("before")\nmeteo.forecast(city="Rome")')
        person.press("Control+Enter")
        try:
            assert told.wait(15)
            person.see("before")
            served.vanish()
            person.see("The server stopped responding while this ran", "before", "outcome unknown")
        finally:
            waits.set()
        assert person.overflow() == []
        assert person.axe() == []
        served.come_back()
        person.type_into(CODE, "numbers.add(a=40, b=2)")
        person.press("Control+Enter")
        person.see("42").see_no("The server stopped responding")
        person.click("Tools", role="link")
        person.see("numbers.add")
        served.put_tool(METEO, "later", {"type": "script", "scriptImpl": {"code": "1"}})
        person.see("meteo.later")  # what happens is followed again
