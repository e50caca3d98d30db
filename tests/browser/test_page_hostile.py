"""Texts of others on the page: markup is shown as text, characters that can't be seen by their numbers."""

import json

import pytest
from upstream import Reply

pytestmark = pytest.mark.attack("the page")

MARKUP = "</script><img src=x onerror=hit=1><b onclick=hit=1>"  # a tag has at most 64 characters
TURNED = "\u202eexe\u200b\u2066"
HOSTILE = f"{MARKUP}{TURNED}"
SHOWN = f"{MARKUP}⟨U+202E⟩exe⟨U+200B⟩⟨U+2066⟩"
UNSEEN = ("\u202e", "\u200b", "\u2066")
HIDING = r"""__person.all('*').filter((one) => [...one.childNodes].some((node) =>
  node.nodeType === 3 && /[\u202e\u200b\u2066]/.test(node.data))).map((one) => one.outerHTML.slice(0, 200))"""
ENEMY = "01890a5d-ac96-774b-bcce-b302099a8058"
SCHEMA = {
    "type": "object",
    "title": HOSTILE,
    "properties": {
        "kind": {"type": "string", "description": HOSTILE, "enum": [HOSTILE, "plain"], "default": HOSTILE},
        HOSTILE: {"type": "string", "description": HOSTILE},
    },
}
TOOL = {
    "type": "script",
    "displayName": HOSTILE,
    "description": f"{HOSTILE}\n\n{HOSTILE}",
    "tags": [HOSTILE],
    "argSchema": SCHEMA,
    "outputSchema": {"description": HOSTILE, "properties": {HOSTILE: {"description": HOSTILE}}},
}
PLAIN = {"type": "object", "properties": {"kind": SCHEMA["properties"]["kind"]}}  # arguments of code are variables
FAILS = {**TOOL, "argSchema": PLAIN, "scriptImpl": {"code": f"raise ValueError({HOSTILE!r})"}}
RESULT = [{HOSTILE: HOSTILE, "second": HOSTILE}, {HOSTILE: 2, "second": [HOSTILE]}]
PLACE = f"#/tools?tool={ENEMY}/gives/1"


@pytest.fixture(scope="module")
def hostile(served):
    """A bundle whose maker means no good."""
    served.put_bundle(ENEMY, "enemy", displayName=HOSTILE, description=HOSTILE)
    served.upstream.say(Reply(headers={"Content-Type": "application/json"}, body=json.dumps(RESULT).encode()))
    request = {"urlTemplate": f"{served.upstream.url}/gives"}
    served.put_tool(ENEMY, "gives", {**TOOL, "type": "http", "httpImpl": {"request": request}})
    served.put_tool(ENEMY, "fails", FAILS)
    for slug in ("gives", "fails"):
        path = f"/tools/bundles/{ENEMY}/tools/{slug}/version/1"
        served.api.post(f"{path}/invoke", json={"args": {}})
        examples = {"examples": [{"name": HOSTILE, "description": HOSTILE, "args": {"kind": HOSTILE}}]}
        done = served.api.put(f"{path}/examples", json=examples)
        assert done.status_code in (200, 204), done.text
    return served


def nothing_ran(person):
    """Nothing of it is an element, nothing of it has run, and nothing hides in what is read."""
    assert person.value("window.hit") is None
    assert person.value("__person.all('img[src=x], b[onclick]').length") == 0
    assert person.value("document.scripts.length") == 1
    read = person.text() + person.value("document.title")
    assert [sign for sign in UNSEEN if sign in read] == [], person.value(HIDING)
    return read


def test_the_list_its_filters_and_ctrl_k(person, hostile):
    person.open("#/tools?bundle=enemy").see("2 tools", SHOWN)
    tags = person.value("[...document.querySelector('select[aria-label=Tag]').options].map((one) => one.text)")
    assert f"{SHOWN} (2)" in tags
    nothing_ran(person)
    person.press("Control+k")
    person.until("__person.focused()[1] === 'Find anything'")
    person.write("enemy")
    person.see(SHOWN[:60])
    nothing_ran(person)


def test_a_tool_and_what_it_says_of_itself(person, hostile):
    person.open(f"{PLACE}&tab=about")
    person.see("Arguments", SHOWN)
    assert nothing_ran(person).count(SHOWN) >= 7  # header, tag, rows of arguments and results
    person.open(f"{PLACE}&tab=versions").see("in use")
    nothing_ran(person)


def test_errors_in_the_usage(person, hostile):
    person.open(f"#/tools?tool={ENEMY}/fails/1&tab=usage").see("Last errors", MARKUP)
    nothing_ran(person)


def test_a_notice(person, hostile):
    person.open("#/tools?bundle=enemy").see("2 tools")
    hostile.switch("enemy.gives", False)
    person.see("was switched off elsewhere")
    hostile.switch("enemy.gives", True)
    nothing_ran(person)


def test_an_address_that_somebody_sends(person, served):
    person.forgive("status of 4")
    person.open(f"#/tools?q={MARKUP}&tag={MARKUP}&source={MARKUP}&tool={MARKUP}/x/y&tab={MARKUP}")
    person.see("No tool matches")
    nothing_ran(person)


def test_a_form_its_examples_and_a_result(person, hostile):
    person.open(f"{PLACE}&tab=try").see("Save as example")
    assert nothing_ran(person).count(SHOWN) >= 3  # the name of a field, its meaning, an example
    person.click("Run", role="button")
    person.see("Result", "second")
    assert nothing_ran(person).count(SHOWN) >= 6
    person.click("Tree", role="tab")
    person.see("the whole result")
    nothing_ran(person)
    person.click("Text", role="tab")
    nothing_ran(person)
    person.click("Request", role="button")
    nothing_ran(person)


def test_an_error_of_a_call(person, hostile):
    person.open(f"#/tools?tool={ENEMY}/fails/1&tab=try")
    person.click("Run", role="button")
    person.see("Failed", SHOWN)
    nothing_ran(person)


def test_bundles_and_tools_that_are_built(person, hostile):
    person.open(f"#/build?bundle={ENEMY}").see("enemy", "gives")
    nothing_ran(person)
    person.open(f"#/build?tool={ENEMY}/gives/1").see("enemy.gives")
    nothing_ran(person)


def test_a_file_with_such_a_name(person, hostile, tmp_path):
    name = HOSTILE.replace("/", "")  # no file has it in its name
    file = tmp_path / f"{name}.json"
    file.write_text('{"openapi": "3.0.0", "info": {"title": "x"}, "paths": {}}', encoding="utf-8")
    person.open("#/build?import=1").see("Import")
    person.attach("input[type=file]", file)
    person.see(SHOWN.replace("/", ""))
    nothing_ran(person)
