"""Somebody looks at the calls that they made before: in Try it, in the playground, and of a recipe."""

import json

import pytest
from browser.harness import METEO, harness, named_token
from browser.person import Person
from browser.screens import look
from upstream import Reply

JSON = {"Content-Type": "application/json"}
TOKEN, OTHER = "sesame-token-0123456789", "other-token-0123456789"
PAST = "{place}.getItem('onetool.history') ?? ''"
WORDS = {
    "en": ("History", "Compare with the last result", "Clear"),
    "zh-CN": ("历史记录", "与最近的结果比较", "清除"),
}
SECRET = {
    "type": "script",
    "argSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}},
    },
    "scriptImpl": {"code": "city"},
}
RECIPE = {
    "type": "script",
    "argSchema": {"type": "object", "properties": {}},
    "scriptImpl": {"code": "step1 = numbers.add(a=1, b=2)\nstep2 = numbers.add(a=step1, b=10)\nstep2\n"},
}


def kept(person, place="sessionStorage"):
    return person.value(PAST.format(place=place))


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh-CN", "dark")])
def test_a_call_is_compared_with_the_last_one_and_made_again(browser, served, language, scheme):
    title, compare, clear = WORDS[language]
    replies = iter(["fog", "sun", "rain"])
    served.upstream.say(lambda _: Reply(200, JSON, json.dumps({"sky": next(replies)}).encode()))
    with browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        look(person, language, scheme, 1280)
        person.open(f"#/tools?tool={METEO}/forecast/1&tab=try")
        person.type_into("city", "Rome")
        for sky in ("fog", "sun"):
            person.press("Control+Enter")
            person.see(f'"{sky}"', "200")
        person.click(title)
        person.click('{"city":"Rome"}', nth=1)
        person.click(compare, role="button")
        person.see("/sky", '"fog"')
        assert person.axe() == []
        assert person.overflow() == []
        assert "fog" in kept(person)
        assert kept(person, "localStorage") == ""
        person.reload()
        person.see(title)
        person.click(title)
        person.click(clear, role="button")
        person.see_no(title)
        assert kept(person) == ""
        assert person.faults() == []


def test_secret_arguments_are_left_out_and_a_call_becomes_an_example(person, served):
    served.put_tool(METEO, "pinned", SECRET)
    person.open(f"#/tools?tool={METEO}/pinned/1&tab=try")
    person.type_into("city", "Oslo")
    person.type_into("pin", "pin-0123456789")
    person.press("Control+Enter")
    person.click("History")
    person.click('{"city":"Oslo"}')
    assert "pin-0123456789" not in kept(person)
    person.click("Save as example", role="button", nth=-1)
    person.until("document.activeElement?.matches('form input')")
    person.write("north")
    person.press("Enter")
    person.see("Saved: north")
    examples = served.api.get(f"{served.path_of('meteo.pinned')}/examples").json()["examples"]
    assert examples == [{"name": "north", "args": {"city": "Oslo"}}]


def test_runs_of_the_playground_and_of_a_recipe_are_there(person, served):
    person.open("#/play")
    person.type_into("Python code", "numbers.add(a=1, b=1)")
    person.press("Control+Enter")
    person.see("History")
    person.click("History")
    person.click("numbers.add(a=1, b=1)", role="button")
    person.click("Run again")
    person.until("document.querySelectorAll('[aria-label=History] li').length === 2")

    served.put_tool(METEO, "sums", RECIPE)
    person.open(f"#/recipe?tool={METEO}/sums/1")
    person.see("step2")
    person.press("Control+Enter")
    person.click("History")
    person.click("{}", role="button")
    person.see("step1", "step2")
    assert [one["name"] for one in json.loads(json.loads(kept(person)))["calls"][0]["steps"]] == ["step1", "step2"]


def test_the_next_person_in_this_tab_sees_nothing_of_it(browser, tmp_path):
    other = named_token("other", OTHER, "edit")
    with harness(tmp_path, token=TOKEN, http={"tokens": [other]}) as served, browser.page() as page:
        person = Person(page, served.url)
        person.open("#/tools").sign_in(TOKEN)
        person.open(f"#/tools?tool={METEO}/forecast/1&tab=try")
        person.type_into("city", "Rome")
        person.press("Control+Enter")
        person.see("History")
        person.value("localStorage.removeItem('onetool.session')")  # it has ended while the page was closed
        person.reload()
        person.sign_in(OTHER)
        person.see("Run").see_no("History")
        person.type_into("city", "Oslo")
        person.press("Control+Enter")
        person.see("History")
        assert "Rome" not in kept(person)


def test_it_is_kept_longer_where_somebody_wants_that_and_ends_with_signing_out(browser, tmp_path):
    with harness(tmp_path, token=TOKEN) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.open("#/tools").sign_in(TOKEN)
        person.open(f"#/tools?tool={METEO}/forecast/1&tab=try")
        person.type_into("city", "Rome")
        person.press("Control+Enter")
        person.see("History")
        person.click("Settings")
        person.click("Keep the history of calls in this browser until I sign out")
        assert "Rome" in kept(person, "localStorage")
        assert kept(person) == ""
        person.click("Sign out")
        person.see("Sign in")
        assert kept(person, "localStorage") == ""
