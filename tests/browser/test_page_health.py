"""What is wrong, in a real browser: said with its place and what mends it. And the tour of who is new."""

import json

import pytest
from browser.person import Person
from browser.stage import stage
from interfaces.http.conftest import Served

TOKEN = "sesame-token-0123456789"
CLOCK = {"command": "echo", "args": ["<b>tick</b>"], "enabled": False}


@pytest.mark.parametrize("token", [TOKEN, None])
def test_nothing_is_wrong_until_something_is(browser, tmp_path, token):
    with stage(tmp_path, token=token) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url).open("#/health")
        person.forgive("status of 4")  # the broken pack is refused
        if token:
            person.sign_in(token)
        person.see("Trust of this folder", "OneTool ", "Nothing is wrong")
        (served.server.folder / "packs" / "broken.py").write_text("def one(:\n")
        person.click("Check again", role="button")
        if token:
            person.see("Error", "broken.py", "1 thing to look at")
        else:  # only an admin has the files read again
            person.see("It has changed since it was read", "1 thing to look at")
        assert person.faults() == []


@pytest.fixture
def newcomer(browser, served):
    with browser.page(width=375, height=700) as page:
        one = Person(page, served.url, is_new=True)
        yield one
        assert one.faults() == []


def test_the_tour_is_shown_once(newcomer):
    """On a phone, where the bar scrolls to what is pointed at."""
    newcomer.open("#/tools").see("Every tool in one list", "1 / 5")
    for n in range(2, 6):
        newcomer.press("Enter")  # the focus is where one goes on
        newcomer.see(f"{n} / 5")
    pointed = "document.querySelector('.pointed').getBoundingClientRect()"
    newcomer.until(f"{pointed}.left >= 0 && {pointed}.right <= innerWidth")
    newcomer.page.click("[data-row]")
    newcomer.until("location.hash.includes('tool=')")  # the page can be used meanwhile
    newcomer.press("Escape")
    newcomer.see_no("5 / 5")
    assert "tool=" in newcomer.place, "Escape ends the tour, not what is behind it"
    newcomer.press("Escape")
    newcomer.until("!location.hash.includes('tool=')")
    newcomer.reload()
    newcomer.see("numbers.add").see_no("1 / 5")
    newcomer.click("Settings", role="button")
    newcomer.click("Show the tour", role="button")
    newcomer.see("1 / 5")


@pytest.fixture(params=[None, TOKEN], ids=["open", "token"])
def project(request, tmp_path):
    """A server in the folder of a project that nobody has trusted. Its token is of the person's own config."""
    inside, own = tmp_path / "project" / ".onetool", tmp_path / ".onetool"
    inside.mkdir(parents=True)
    own.mkdir()
    (inside / "onetool.yaml").write_text(json.dumps({"servers": {"clock": CLOCK}}))
    (own / "onetool.yaml").write_text(json.dumps({"http": {"token": request.param}} if request.param else {}))
    env = {"HOME": str(tmp_path), "ONETOOL_HOME": ""}
    server = Served(inside.parent, "--port", "0", command=("-m", "onetool"), env=env)
    try:
        yield server, inside / "onetool.yaml", request.param
    finally:
        server.stop()


def test_a_folder_is_trusted_by_who_has_seen_what_it_reaches(browser, project):
    server, config, token = project
    with browser.page(width=1280, height=800) as page:
        person = Person(page, f"http://127.0.0.1:{server.port}/")
        person.forgive("status of 401")
        person.open("#/health")
        if token:
            person.type_into("Token", token)
            person.press("Enter")
        person.see(
            "Trust of this folder",
            "Not trusted",
            "It would reach 1 thing",
            "It runs",
            "server clock: echo '<b>tick</b>'",
        )
        assert person.value("document.querySelector('main li b') === null")
        assert person.axe() == []
        if token:
            _trusted(person, config)
        else:
            person.see("onetool trust", "With the role admin").see_no("Trust this folder")
            person.value("void (navigator.clipboard.writeText = async (text) => void (globalThis.copied = text))")
            person.click("Copy", role="button")
            person.see("Copied")
            assert person.value("globalThis.copied").startswith("onetool ")
        assert person.faults() == []


def _trusted(person, config):
    """What has changed since it was shown is shown first."""
    person.forgive("status of 409")
    config.write_text(json.dumps({"servers": {"clock": {**CLOCK, "command": "cat"}}}))
    person.click("Trust this folder", role="button")
    person.see("has changed since you looked", "server clock: cat", "Not trusted")
    person.click("Trust this folder", role="button")
    person.see("The folder is trusted", "It reaches 1 thing").see_no("Not trusted", "Trust this folder")
    person.press("g s")
    person.see("clock")
