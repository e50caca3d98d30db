"""Texts of others on the page: markup is shown as text, characters that can't be seen by their numbers."""

import pytest

MARKUP = "</script><img src=x onerror=hit=1><b onclick=hit=1>"  # a tag has at most 64 characters
TURNED = "\u202eexe\u200b\u2066"
HOSTILE = f"{MARKUP}{TURNED}"
SHOWN = f"{MARKUP}⟨U+202E⟩exe⟨U+200B⟩⟨U+2066⟩"
UNSEEN = ("\u202e", "\u200b", "\u2066")
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
    "outputSchema": {"type": "object", "description": HOSTILE, "properties": {HOSTILE: {"description": HOSTILE}}},
}
GIVES = {**TOOL, "scriptImpl": {"code": f"[{{{HOSTILE!r}: {HOSTILE!r}}}]"}}
FAILS = {**TOOL, "scriptImpl": {"code": f"raise ValueError({HOSTILE!r})"}}
PLACE = f"#/tools?tool={ENEMY}/gives/1"


@pytest.fixture(scope="module")
def hostile(served):
    """A bundle whose maker means no good."""
    served.put_bundle(ENEMY, "enemy", displayName=HOSTILE, description=HOSTILE)
    served.put_tool(ENEMY, "gives", GIVES)
    served.put_tool(ENEMY, "fails", FAILS)
    for slug in ("gives", "fails"):
        path = f"/tools/bundles/{ENEMY}/tools/{slug}/version/1"
        served.api.post(f"{path}/invoke", json={"args": {}})
        examples = {"examples": [{"name": HOSTILE, "description": HOSTILE, "args": {"kind": HOSTILE}}]}
        assert served.api.put(f"{path}/examples", json=examples).status_code in (200, 204)
    return served


def nothing_ran(person):
    """Nothing of it is an element, nothing of it has run, and nothing hides in what is read."""
    assert person.value("window.hit") is None
    assert person.value("__person.all('img[src=x], b[onclick]').length") == 0
    assert person.value("document.scripts.length") == 1
    read = person.text() + person.value("document.title")
    assert [sign for sign in UNSEEN if sign in read] == []
    return read


def test_the_list_its_filters_and_ctrl_k(person, hostile):
    person.open("#/tools?bundle=enemy").see("2 tools", SHOWN)
    assert person.value("[...document.querySelector('select[aria-label=Tag]').options].at(-1).text").startswith(SHOWN)
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
    person.see("No tool fits")
    nothing_ran(person)
