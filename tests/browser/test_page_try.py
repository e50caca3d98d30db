"""Somebody tries a tool on the page: fills its form, runs it, looks at the result, keeps the arguments."""

import json

import pytest
from browser.harness import METEO, harness

HOSTILE = "<img src=x onerror=alert(1)>\u202egpj\u200b"
SEEN = "<img src=x onerror=alert(1)>⟨U+202E⟩gpj⟨U+200B⟩"
LARGE = 12345678901234567890  # more than a number of JavaScript holds
BOX = {"w": {"type": "number"}, "type": {"const": "box"}}
ORDER = {
    "type": "object",
    "required": ["title", "count"],
    "properties": {
        "title": {"type": "string", "description": HOSTILE},
        "count": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "big": {"type": "integer"},
        "pin": {"type": "string", "format": "password"},
        "size": {"enum": ["small", HOSTILE]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "node": {"$ref": "#/$defs/node"},
        "shape": {
            "oneOf": [
                {"title": "Dot", "type": "object", "properties": {"type": {"const": "dot"}}, "required": ["type"]},
                {"title": "Box", "type": "object", "properties": BOX, "required": ["w", "type"]},
            ]
        },
        "more": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "array"},
        "note": {},
    },
    "$defs": {
        "node": {
            "type": "object",
            "required": ["label"],
            "properties": {"label": {"type": "string"}, "inner": {"$ref": "#/$defs/node"}},
        }
    },
}
PACK = '''
"""Slow, large, pictured."""

import asyncio

from onetool.sdk import report_progress, tool


def take(order: dict) -> dict:
    """Give an order back."""
    return order


async def slow() -> str:
    """Tell how far it is, and never end."""
    report_progress(1, 2, "half of it")
    await asyncio.sleep(600)
    return "done"


def large() -> list:
    """More than a page can hold."""
    return [{"id": n, "text": "x" * 100, "inner": {"of": [n]}} for n in range(45_000)]


def hostile() -> list:
    """What others may say."""
    return [{"name": "<img src=x onerror=alert(1)>\\u202egpj\\u200b", "big": 12345678901234567890}]


def picture() -> str:
    """One pixel."""
    return "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
'''


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "more").mkdir()
    (folder / "more" / "lab.py").write_text(PACK, encoding="utf-8")
    with harness(folder, packs=["packs", "more"]) as one:
        schema = {"type": "object", "properties": {"order": ORDER}, "required": ["order"], "$defs": ORDER["$defs"]}
        tool = {"type": "python", "description": "Takes an order.", "pythonImpl": {"func": "lab.take"}}
        one.put_tool(METEO, "order", {**tool, "argSchema": schema})
        yield one


def address(served, name, **more):
    one = served.tools()[name]
    rest = "".join(f"&{key}={value}" for key, value in more.items())
    return f"#/tools?tool={one['bundleID']}/{one['slug']}/{one['version']}{rest}"


def open_tool(person, served, name, **more):
    person.open(address(served, name, **more))
    person.see("Copy as")


def sent(person):
    """The arguments as the JSON tab has them: every digit."""
    drafts = json.loads(person.value("localStorage.getItem('onetool.try.drafts')"))
    return json.loads(next(iter(drafts.values())))


def test_a_form_is_filled_refused_mended_and_run(person, served):
    person.forgive("status of 400")  # the call that is refused
    open_tool(person, served, "meteo.order")
    person.see(SEEN)
    person.type_into("title", "tea")
    person.type_into("big", str(LARGE))
    person.type_into("count", "77")
    person.see("expected at most 10")
    assert person.attribute("count", "aria-invalid", role="textbox") == "true"
    person.click("Add tags")
    person.until("document.activeElement.tagName === 'TEXTAREA'")
    person.write("one")
    person.click("Add tags")
    person.until("document.activeElement.value === ''")
    person.write("two")
    person.click("Move tags 2 up")
    person.click("Add node")
    person.type_into("label", "root")
    person.click("Add inner")  # a schema that contains itself opens as far as one goes
    person.type_into("label", "leaf", nth=1)
    person.choose("Type of shape", "Box")
    person.click("Add a key to more")
    person.type_into("key1", "value")
    person.type_into("free", "[1,")
    person.see("Line 1, column 4: the text ends too early.")
    person.type_into("free", f"[{LARGE}]")
    person.type_into("note", "hello plus")  # without a type, what is not JSON is text
    person.press("Control+Enter")
    person.see("Failed")
    assert person.focused() == ("textbox", "count")
    person.type_into("count", "7")
    person.type_into("w", "1.50")
    person.until("document.querySelector('[aria-invalid=true]') === null")
    assert person.reads("w") == "1.50"
    assert person.axe() == []
    person.press("Control+Enter")
    person.see("OK")
    expected = {
        "title": "tea",
        "count": 7,
        "big": LARGE,
        "tags": ["two", "one"],
        "node": {"label": "root", "inner": {"label": "leaf"}},
        "shape": {"type": "box", "w": 1.5},
        "more": {"key1": "value"},
        "free": [LARGE],
        "note": "hello plus",
    }
    assert sent(person) == {"order": expected}
    person.click("Text", role="tab")
    person.see(str(LARGE))
    person.until("document.querySelector('[aria-label^=Result] pre') !== null")
    assert json.loads(person.value("document.querySelector('[aria-label^=Result] pre').textContent")) == expected


def test_a_secret_is_sent_and_not_kept_and_json_and_form_are_in_step(person, served):
    open_tool(person, served, "meteo.order")
    person.type_into("title", "tea")
    person.type_into("pin", "hunter2")
    person.until("localStorage.getItem('onetool.try.drafts')?.includes('tea')")
    person.click("JSON", role="tab")
    person.see("hunter2")
    person.click("Arguments as JSON")
    person.press("Control+End")
    person.write(",")
    person.see("column 2: , is not allowed here.")
    person.click("Form", role="tab")
    person.see("The form shows the last valid arguments.")
    assert person.reads("title") == "tea"
    person.click("JSON", role="tab")
    person.type_into("Arguments as JSON", '{"order": {"title": "milk", "count": 2, "pin": "hunter2"}}')
    person.click("Form", role="tab")
    person.until("__person.where('field', 'title', null, 0)?.value === 'milk'")
    person.press("Control+Enter")
    person.see("OK")
    assert "hunter2" not in person.value("JSON.stringify(localStorage)")
    person.reload()
    person.until("__person.where('field', 'title', null, 0)?.value === 'milk'")
    assert person.reads("pin") == ""
    person.open("#/build").see("meteo", "New bundle")  # whose drafts are others


def test_results_are_shown_as_what_they_are_and_large_ones_in_part(person, served):
    open_tool(person, served, "lab.hostile")
    person.press("Control+Enter")
    person.see(SEEN, str(LARGE))
    person.until("document.querySelector('[aria-label^=Result] table') !== null")
    person.click("big", role="button")
    person.until("document.querySelector('th[aria-sort=ascending]')?.textContent.includes('big')")
    person.click("Tree", role="tab")
    person.see(SEEN, str(LARGE))
    person.value("document.querySelector('[role=treeitem]').focus()")
    person.press("ArrowDown ArrowDown")
    person.see("[0].name")
    person.press("ArrowLeft ArrowLeft")
    person.see_no(SEEN)
    assert person.axe() == []

    open_tool(person, served, "lab.picture")
    person.press("Control+Enter")
    person.until("document.querySelector('[aria-label^=Result] img')?.naturalWidth === 1")

    open_tool(person, served, "lab.large")
    person.press("Control+Enter")
    person.see("45,000 rows", within=60)
    for view in ("Table", "Tree", "Text"):
        person.click(view, role="tab")
        person.see("Show more")
        assert person.value("document.querySelectorAll('*').length") < 3000
        assert person.value("document.body.innerText.length") < 60_000


def test_a_call_that_runs_tells_how_far_it_is_and_is_stopped(person, served):
    person.forgive("net::ERR_ABORTED")
    open_tool(person, served, "lab.slow")
    person.press("Control+Enter")
    person.see("half of it", "Stop")
    person.until("document.querySelector('[role=timer]') !== null")
    person.press("Escape")
    person.see("Stopped")
    person.see_no("half of it")
    assert person.place.startswith("#/tools?tool=")  # Escape has not closed the tool, too
    open_tool(person, served, "numbers.fail")
    person.type_into("reason", HOSTILE)
    person.press("Control+Enter")
    person.see(f"ValueError: {SEEN}", "execution_error")


def test_examples_recent_calls_and_the_request(person, served):
    open_tool(person, served, "meteo.forecast", args='{"city": "Rome %26 Oslo"}')
    person.until("__person.where('field', 'city', null, 0)?.value === 'Rome & Oslo'")
    assert "args" not in person.place
    person.click("Request")
    person.see(f"{served.upstream.url}/v1/Rome%20%26%20Oslo?days=3")
    person.press("Control+Enter")
    person.see("clear")
    person.type_into("city", "Kyiv")
    person.see("/v1/Kyiv?days=3")
    person.click("Save as example")
    person.write(HOSTILE)
    person.press("Enter")
    person.see(f"Saved: {SEEN}")
    path = f"{served.path_of('meteo.forecast')}/examples"
    assert served.api.get(path).json()["examples"] == [{"name": HOSTILE, "args": {"city": "Kyiv"}}]
    person.click("History")
    person.click('{"city":"Rome & Oslo"}')
    person.click("Run again")
    person.until("__person.where('field', 'city', null, 0)?.value === 'Rome & Oslo'")
    person.click(SEEN, role="button")
    person.until("__person.where('field', 'city', null, 0)?.value === 'Kyiv'")
    person.click(f"Delete the example {SEEN}")
    person.see(f"Deleted: {SEEN}")
    assert served.api.get(path).json()["examples"] == []
    person.click("Undo", nth=1)
    person.until(f"__person.names('button').includes({json.dumps(SEEN)})")
    assert len(served.api.get(path).json()["examples"]) == 1


def test_a_tool_shows_what_it_leaves_to_its_function(person, served):
    served.put_tool(METEO, "bare", {"type": "python", "pythonImpl": {"func": "numbers.add"}})
    open_tool(person, served, "meteo.bare")
    person.see("Add two numbers")
    person.type_into("a", "2")
    person.press("Control+Enter")
    person.see("OK")
    person.open(address(served, "meteo.bare", tab="about"))
    person.see("integer")
    person.see_no("It takes no arguments.")
    person.open("#/tools")
    person.see("Add two numbers", "meteo.bare")
