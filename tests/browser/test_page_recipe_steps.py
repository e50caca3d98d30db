"""Steps of a recipe stay while somebody edits them, know what they have called, and keep no secret."""

import json

import pytest
from browser.harness import METEO, harness
from browser.person import Person
from upstream import Reply

TEXT = {"type": "string"}
SHOP = "01890a5d-ac96-774b-bcce-b302099a8059"
LOOK = {
    "type": "http",
    "description": "Looks something up.",
    "argSchema": {"type": "object", "properties": {"word": TEXT}, "required": ["word"]},
}
LOGIN = {
    "type": "http",
    "description": "Logs in.",
    "argSchema": {"type": "object", "properties": {"pin": {**TEXT, "format": "password"}}},
}

PACK = '''
"""Slow."""

import asyncio

from onetool.sdk import report_progress


async def slow(word: str) -> str:
    """Tell how far it is; with b it never ends."""
    report_progress(1, 2, f"half of {word}")
    if word == "b":
        await asyncio.sleep(600)
    return word
'''
TOKEN = "a-token-that-is-long-enough"


class Shop:
    """Answers with how often it was asked. Words in `broken` fail."""

    def __init__(self):
        self.asked, self.broken = [], set()

    def __call__(self, seen):
        word = seen.target.rsplit("/", 1)[1]
        self.asked.append(word)
        if word in self.broken:
            return Reply(500)
        value = {"word": word, "n": str(len(self.asked))}
        return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(value).encode())


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "more").mkdir()
    (folder / "more" / "lab.py").write_text(PACK, encoding="utf-8")
    with harness(folder, packs=["packs", "more"]) as one:
        yield one


@pytest.fixture(scope="module")
def shop(served):
    answers, url = Shop(), served.upstream.url
    served.upstream.say(answers)
    served.put_bundle(SHOP, "shop")
    served.put_tool(SHOP, "look", {**LOOK, "httpImpl": {"request": {"urlTemplate": f"{url}/look/${{word}}"}}})
    served.put_tool(SHOP, "login", {**LOGIN, "httpImpl": {"request": {"urlTemplate": f"{url}/login/${{pin}}"}}})
    return answers


def start(person, name="shop.look"):
    person.open("#/recipe")
    person.see("A recipe is a list of steps")
    add(person, name)


def add(person, name):
    person.click("Add a step", role="button")
    person.type_into("Find anything", name)
    person.click(name, role="option")


def argument(person, name):
    if "Add an argument" not in person.text():
        person.click("Arguments")
    person.click("Add an argument", role="button")
    person.type_into("Name of argument 1", name)


def kept(person, storage="localStorage"):
    return person.value(f"JSON.stringify({storage})")


def test_steps_stay_while_one_types(person, shop):
    start(person)
    person.click("word")
    for key in "-5\"'${[(":
        person.write(key)
        assert person.reads("word").endswith(key)
    assert person.reads("word") == "-5\"'${[("
    person.click("Only if")
    for field in ("First value", "Second value"):
        person.click(field)
        for key in "-1":
            person.write(key)
            assert "This code is not a recipe" not in person.text()
    person.click("For each item of a list")
    person.click("The list")
    for key in "-\n-2":
        person.write(key)
    person.see_no("This code is not a recipe")
    assert [person.reads(one) for one in ("word", "First value", "Second value", "The list")] == [
        "-5\"'${[(",
        "-1",
        "-1",
        "-\n-2",
    ]
    person.reload()  # the code says all of it
    assert person.reads("word") == "-5\"'${[("
    assert person.reads("The list") == "-\n-2"


def test_a_step_has_the_arguments_that_its_tool_leaves_to_a_function(person, served, shop):
    served.put_tool(SHOP, "bare", {"type": "python", "pythonImpl": {"func": "lab.slow"}})
    start(person, "shop.bare")
    person.type_into("word", "a")
    assert person.reads("word") == "a"


def test_a_recipe_that_was_left_goes_on(person, shop):
    shop.asked.clear()
    person.open("#/recipe").see("A recipe is a list of steps")
    away_and_back(person)
    person.see("A recipe is a list of steps")
    add(person, "shop.look")
    person.type_into("word", "Rome")
    away_and_back(person)
    person.type_into("word", "Oslo")
    person.click("Run to here")
    person.see("Run this step again")
    assert shop.asked == ["Oslo"]


def away_and_back(person):
    person.click("Tools", role="link")
    person.see("shop.login")
    person.click("Recipes", role="link")
    person.see("Add a step")


def test_an_argument_that_a_step_uses_is_renamed_and_removed(person, shop):
    start(person)
    argument(person, "town")
    person.click("Pick word from a step")
    person.click("Use this")
    person.see("town")
    person.click("Name of argument 1")
    person.press("End")
    for key in "ship":
        person.write(key)
    person.click("Code")
    person.see("shop.look(word=township)")
    person.click("Steps")
    for name in ("step1", "item", "str", "table", "shop", "class", "a b"):
        person.type_into("Name of argument 1", name)
        person.press("Tab")
        person.see(f"{name} can't be used in code, or means something else there")
        assert person.reads("Name of argument 1") == "township"
    person.click("Remove township")
    person.see("township is neither an earlier step nor an argument")
    assert person.value("[...document.querySelectorAll('article button')].at(-1).disabled")
    assert person.axe() == []
    person.reload()
    person.see("township is neither an earlier step nor an argument")
    argument(person, "township")
    person.see_no("township is not a step before this one")
    person.click("Code")
    person.see("shop.look(word=township)")


def test_what_items_gave_is_kept_when_a_later_one_fails(person, shop):
    shop.asked.clear()
    shop.broken = {"c"}
    start(person)
    person.click("For each item of a list")
    person.type_into("The list", "a\nb\nc\nd")
    person.click("Pick word from a step")
    person.click("Use this")
    add(person, "shop.look")
    person.click("Pick word from a step", nth=1)
    person.click("Use this")  # of step 1, as it is not known yet
    person.click("Run to here")
    person.see("Ended at item 3 of 4: c. Earlier items are not called again")
    first = list(shop.asked)
    assert first[:3] == ["a", "b", "c"]
    assert set(first[3:]) <= {"c"}
    person.reload()
    person.see("Ended at item 3 of 4: c")
    shop.broken = set()
    person.click("Run to here")
    person.see("4 rows")
    assert shop.asked[len(first) :] == ["c", "d"]
    person.type_into("The list", "a\nb\nc\nd\ne")
    person.see("changed since it ran")
    person.click("Run to here")
    person.see("5 rows")
    assert shop.asked[len(first) :] == ["c", "d", "e"], "the same calls are not made again"


def test_a_step_tells_how_far_it_is_and_goes_on_where_it_was_stopped(person, shop):
    start(person, "lab.slow")
    person.click("For each item of a list")
    person.type_into("The list", "a\nb")
    person.click("Pick word from a step")
    person.click("Use this")
    person.click("Run to here")
    person.see("half of b")
    assert person.axe() == []
    person.click("Stop", role="button")
    person.see("Ended at item 2 of 2: b")


def test_an_answer_is_old_when_what_it_uses_has_changed(person, shop):
    shop.asked.clear()
    start(person)
    person.type_into("word", "x")
    person.click("Run to here")
    person.see("OK")
    add(person, "shop.look")
    person.click("Pick word from a step", nth=1)
    person.click("1", role="treeitem")
    person.see("step1.n")
    person.click("Run to here")
    person.see("Run this step again")
    person.until("document.querySelectorAll('article').length === 2")
    person.see_no("Run to here", "Stop")
    assert shop.asked == ["x", "1"]
    person.click("Run this step again")  # the first one: it gives another number
    person.see("changed since it ran", "Run to here")
    assert shop.asked == ["x", "1", "x"]


def test_no_secret_stays_in_the_browser(person, served, shop):
    schema = {"type": "object", "properties": {"pin": {"type": "string", "format": "password"}}}
    code = "step1 = shop.login(pin=pin)\nstep1\n"
    served.put_tool(METEO, "pinned", {"type": "script", "argSchema": schema, "scriptImpl": {"code": code}})
    person.open(f"#/recipe?tool={METEO}/pinned/1")
    person.see("step1", "shop.login")
    person.type_into("pin", "hunter2")
    person.type_into("Description", "Logs in with a pin.")
    person.click("Run to here")
    person.see("lost when the page is reloaded")
    person.until("JSON.stringify(localStorage).includes('Logs in with a pin.')")
    assert "hunter2" not in kept(person) + kept(person, "sessionStorage")
    person.click("Clear pin", nth=1)
    person.see("Everyone could read it in the script")
    person.open(f"#/build?tool={METEO}/pinned/1")
    person.type_into("Arguments of the preview", '{"pin": "hunter3"}')
    person.type_into("Description", "Other words.")
    person.until("JSON.stringify(localStorage).includes('Other words.')")
    assert "hunter" not in kept(person) + kept(person, "sessionStorage")


def test_signing_out_takes_what_steps_gave(tmp_path, browser):
    with harness(tmp_path, token=TOKEN) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.forgive("status of 401")
        person.open("#/recipe").see("Sign in to OneTool")
        person.type_into("Token", TOKEN)
        person.press("Enter")
        person.see("A recipe is a list of steps")
        add(person, "lamp")
        person.click("Run to here")
        person.see("Run this step again")
        assert "answers" in kept(person, "sessionStorage")
        person.click("Settings", role="button")
        person.click("Sign out", role="button")
        person.see("Sign in to OneTool")
        assert "answers" not in kept(person, "sessionStorage")
        person.type_into("Token", TOKEN)
        person.press("Enter")
        person.see("Run to here").see_no("Run this step again")
        assert person.faults() == []
