"""A newcomer makes a recipe with the keyboard, saves it without a bundle, and finds it again."""

import pytest
from browser.harness import METEO, harness
from browser.person import Person
from upstream import Reply


@pytest.fixture
def asked(served):
    """The cities that the forecast was asked for."""
    cities = []

    def answer(seen):
        cities.append(seen.target.split("?")[0].rsplit("/", 1)[1])
        return Reply(headers={"Content-Type": "application/json"}, body=b'{"sky": "clear"}')

    served.upstream.say(answer)
    return cities


def add(person, name):
    person.click("Add a step", role="button")
    person.type_into("Find anything", name)
    person.press("Enter")


def is_at(person, name):
    person.until(f"__person.focused()[1].startsWith({name!r})")


def test_without_a_bundle_saving_makes_one(tmp_path, browser):
    with harness(tmp_path) as served, browser.page(width=1280, height=800) as page:
        for path in (served.path_of("meteo.report"), served.path_of("meteo.forecast"), f"/tools/bundles/{METEO}"):
            assert served.api.delete(path).status_code in (200, 204)
        person = Person(page, served.url)
        person.open("#/recipe").see("A recipe is a list of steps")
        person.until("document.querySelector('main header .primary').disabled")
        add(person, "lamp")
        person.press("Control+s")
        is_at(person, "New bundle")
        person.write("my-home")
        person.type_into("Name", "evening")
        person.see("In code: my_home.evening", "The first part of its tools' names")
        assert person.axe() == []
        person.press("Enter")
        person.see("Saved: evening 1", "my_home.evening")
        assert "my_home.evening" in served.tools()
        person.until("document.querySelector('main header .primary').disabled")
        person.click("New recipe", role="link")
        person.see("A recipe is a list of steps")
        person.click("my_home.evening", role="link")
        person.see("step1", "lamp")
        person.type_into("Description", "Light.")
        person.see("Unsaved draft")
        person.press("Control+s")
        is_at(person, "Name")
        person.see("this becomes a new version")
        person.press("Enter")
        person.see("Saved: evening 2")
        assert person.faults() == []


def test_the_focus_follows_steps(person, asked):
    person.open("#/recipe").see("A recipe is a list of steps")
    add(person, "meteo.forecast")
    is_at(person, "city")
    person.write("Rome")
    add(person, "meteo.forecast")
    person.see("step2")
    person.until("document.activeElement.closest('article')?.ariaLabel === 'step2'")
    is_at(person, "city")
    person.click("Remove step1")
    is_at(person, "Remove step2")


def test_steps_that_have_run_run_again_only_if_one_says_so(person, asked):
    person.open("#/recipe")
    add(person, "meteo.forecast")
    is_at(person, "city")
    person.write("Rome")
    person.press("Control+Enter")
    person.see("Run all steps again")
    person.press("Control+Enter")
    person.see("Nothing has changed since the steps ran")
    assert asked == ["Rome"]
    person.click("Run all steps again")
    person.until("!document.querySelector('article .danger')")
    person.see("Run all steps again")
    assert asked == ["Rome", "Rome"]


def test_a_list_says_how_it_is_typed_and_an_empty_one_that_nothing_is_done(person, asked):
    person.open("#/recipe")
    add(person, "meteo.forecast")
    person.click("For each item of a list")
    person.type_into("The list", "Rome, Oslo")
    person.see("One item per line")
    person.type_into("The list", "")
    person.click("Run to here")
    person.see("Nothing to do, so nothing was called").see_no("OK")
    assert asked == []
    assert person.axe() == []


def test_old_versions_are_not_offered_as_steps(person, served):
    lamp = {"type": "script", "scriptImpl": {"code": "step1 = lamp()\nstep1\n"}}
    for version in ("1", "2"):
        served.put_tool(METEO, "twice", lamp, version)
    person.open("#/recipe")
    person.see("meteo.twice")
    assert [one for one in served.tools() if one.startswith("meteo.twice@")]
    person.click("Add a step", role="button")
    person.type_into("Find anything", "twice")
    person.see("meteo.twice")
    assert "meteo.twice@" not in person.text()
