"""The list of tools in a real browser: found, opened, switched, with the mouse and by keys alone."""

import pytest
from browser.harness import METEO, harness
from browser.person import Person
from helpers import until

TOKEN = "sesame-token-0123456789"


@pytest.fixture(autouse=True)
def all_on(request):
    """Tests of this file share a server: each leaves every tool on."""
    yield
    if "served" in request.fixturenames:
        served = request.getfixturevalue("served")
        for name, tool in served.tools().items():
            if not tool["isEnabled"]:
                served.switch(name, True)


def rows(person):
    return [name.split()[0] for name in person.names("listitem")]


def test_tools_are_found_by_words_and_by_where_they_come_from(person):
    person.open("#/tools").see("numbers.add", "meteo.forecast", "time.now")
    person.type_into("Filter tools", "numbers squ")
    person.see("1 tool").see_no("meteo.forecast")
    assert rows(person) == ["numbers.table"]
    person.type_into("Filter tools", "")
    person.choose("Source", "Bundle")
    person.see("2 tools").see_no("numbers.add")
    assert rows(person) == ["meteo.forecast", "meteo.report"]
    person.choose("Tag", "outdoors")
    person.see("1 tool").see_no("meteo.report")
    assert "source=bundle" in person.place, "a link to what is shown can be kept"
    person.reload()
    person.see("1 tool", "meteo.forecast")
    person.type_into("Filter tools", "nothing of the kind")
    person.see("No tool matches")
    person.click("Clear filters")
    person.see("numbers.add")


def test_a_tool_shows_what_it_is_and_how_it_does(person, served):
    for city in ("Rome", "Oslo"):
        assert served.api.post(served.path_of("meteo.forecast") + "/invoke", json={"args": {"city": city}}).json()["ok"]
    person.open("#/tools").see("meteo.forecast")
    person.click("meteo.forecast", role="link")
    person.until("document.querySelector('article h1')?.textContent === 'meteo.forecast'")
    person.until(
        "document.querySelector('article .facts [title=\"A call changes nothing.\"]')?.textContent === 'Reads'"
    )
    person.click("About", role="tab")
    person.see("where", "meteo.forecast(", "celsius", "/v1/${city}")
    person.click("Usage", role="tab")
    person.see("Recent calls")
    person.press("ArrowRight")
    person.see("in use")
    assert person.focused() == ("tab", "Versions")
    assert "tab=versions" in person.place
    person.click("weather", role="link")
    person.see("2 tools")
    person.value("history.back()")
    person.see("numbers.table", "time.now")


def test_a_switch_acts_at_once_and_can_be_undone(person, served):
    person.open("#/tools").see("numbers.add")
    person.click("Switch numbers.add on or off", role="switch")
    person.see("numbers.add is off now")
    until(lambda: not served.is_enabled("numbers.add"))
    assert person.attribute("Switch numbers.add on or off", "aria-checked", "switch") == "false"
    person.click("Undo", role="button")
    until(lambda: served.is_enabled("numbers.add"))
    person.until(
        "__person.where('thing', 'Switch numbers.add on or off', 'switch', 0).getAttribute('aria-checked') === 'true'"
    )


def test_a_tool_is_one_row_and_is_switched_with_all_its_versions(person, served):
    echo = {"type": "python", "pythonImpl": {"func": "tools.echo"}}
    for version in ("1", "2", "3"):
        served.put_tool(METEO, "thrice", echo, version)
    until(lambda: "meteo.thrice" in served.tools())
    versions = f"/tools/bundles/{METEO}/tools/thrice/versions"

    def on():
        return {one["version"]: one["isEnabled"] for one in served.api.get(versions).json()["versions"]}

    before = {"1": True, "2": False, "3": True}
    assert served.api.patch(versions, json={"versions": before}).status_code == 200
    person.open("#/tools?q=thrice").see("meteo.thrice", "1 tool").see_no("meteo.thrice@1")
    person.click("Switch meteo.thrice on or off", role="switch")
    person.see("meteo.thrice is off now, in all 3 versions")
    until(lambda: not any(on().values()))
    person.click("Undo", role="button")
    until(lambda: on() == before)
    person.open(f"#/tools?tool={METEO}/thrice/1&tab=versions&q=thrice").see("in use", "meteo.thrice@1")
    assert rows(person) == ["meteo.thrice"]
    assert person.value("document.querySelectorAll('[data-row][aria-current]').length") == 1
    person.open(f"#/build?bundle={METEO}").see("thrice")
    links = "[...document.querySelectorAll('main a')].filter((one) => one.innerText.includes('thrice')).length"
    person.until(f"{links} === 2", "see one beside the bundle, and one in it")
    served.api.patch(versions, json={"isEnabled": True})
    for version in ("1", "2", "3"):
        served.api.delete(f"/tools/bundles/{METEO}/tools/thrice/version/{version}")


def test_the_switch_of_a_version_that_is_off_is_off(person, served):
    tool = {"type": "script", "argSchema": {"type": "object"}, "scriptImpl": {"code": "1"}}
    for version in ("1", "2"):
        served.put_tool(METEO, "aged", tool, version)
    done = served.api.patch(f"/tools/bundles/{METEO}/tools/aged/version/1", json={"isEnabled": False})
    assert done.status_code == 200, done.text
    for version, state in (("1", "false"), ("2", "true")):
        for place in (f"#/tools?tool={METEO}/aged/{version}", f"#/build?tool={METEO}/aged/{version}"):
            person.open(place)
            person.until(f"document.querySelector('article [role=switch]')?.getAttribute('aria-checked') === '{state}'")


def test_own_tools_are_folded_away(person):
    person.open("#/tools").see("numbers.add").see_no("ot.version")
    person.click("Show 18 built-in ot tools", role="button")
    person.until("document.querySelector('.fold').ariaExpanded === 'true'")
    person.click("Hide 18 built-in ot tools", role="button")
    person.type_into("Filter tools", "ot.version")
    person.see("ot.version").see_no("built-in ot tools")


def test_escape_closes_the_innermost_thing_first(person, served):
    person.open("#/tools?tool=" + "/".join(served.path_of("numbers.add").split("/")[i] for i in (3, 5, 7)))
    person.click("Copy as", role="button")
    person.type_into("Filter tools", "numbers")
    person.press("Escape")
    person.until("location.hash.includes('tool=') && !location.hash.includes('q=')", "clear the words alone")
    person.type_into("a", "1")
    person.press("Escape")
    person.until("__person.focused()[0] !== 'spinbutton'", "leave the field alone")
    assert person.attribute("Copy as", "aria-expanded", "button") == "true"
    person.press("Escape")
    person.until("document.querySelector('[aria-expanded=true]') === null", "close what was opened")
    assert "tool=" in person.place
    person.press("Escape")
    person.until("!location.hash.includes('tool=')")


def test_about_counts_calls_that_were_made_meanwhile(person, served):
    key = "/".join(served.path_of("numbers.describe").split("/")[i] for i in (3, 5, 7))
    person.open(f"#/tools?tool={key}&tab=about").see("Calls")
    before = served.api.get(served.path_of("numbers.describe")).json()["callCount"]
    for _ in range(3):
        served.api.post(f"{served.path_of('numbers.describe')}/invoke", json={"args": {"values": [1]}})
    person.see(f"{before + 3} · ")
    person.reload()
    person.see(f"{before + 3} · ")


def test_what_somebody_else_switches_is_shown(person, served):
    person.open("#/tools").see("numbers.add")
    served.switch("lamp", False)
    person.see("lamp was switched off elsewhere")
    assert person.value("document.querySelectorAll('.flashed').length") == 1
    assert person.attribute("Switch lamp on or off", "aria-checked", "switch") == "false"
    served.switch("lamp", True)
    person.see("lamp was switched on elsewhere")


def test_everything_can_be_done_by_keys(person, served):
    person.open("#/tools").see("numbers.add")
    person.press("Tab")
    assert person.focused() == ("link", "Skip to the content")
    person.press("/")
    assert person.focused()[0] == "searchbox"
    person.write("numbers")
    person.see("5 tools")
    person.press("ArrowDown")
    person.until("/[./=]add(\\b|\\/)/.test(location.hash)")
    person.press("ArrowDown")
    person.until("/[./=]describe(\\b|\\/)/.test(location.hash)")
    assert person.focused()[1].startswith("numbers.describe")
    person.press("End k k")
    person.until("/[./=]fail(\\b|\\/)/.test(location.hash)")
    person.press("s")
    person.see("numbers.fail is off now")
    until(lambda: not served.is_enabled("numbers.fail"))
    person.press("?")
    person.see("Show the keyboard shortcuts", "Next tool")
    person.press("j s")  # what is behind a dialog can't be reached
    person.press("Escape")
    person.see_no("Show the keyboard shortcuts")
    assert "fail" in person.place, "Escape closes the dialog, not the tool behind it"
    person.press("Escape")
    person.until("!/[./=]fail(\\b|\\/)/.test(location.hash)")


def test_ctrl_k_finds_tools_screens_and_actions(person):
    person.open("#/tools").see("numbers.add")
    person.press("Control+k")
    person.until("__person.focused()[1] === 'Find anything'")
    person.write("nums add")
    person.see("Nothing matches these words")
    person.type_into("Find anything", "lamp")
    person.see("Switches a lamp.")
    person.press("Enter")
    person.until("/[./=]lamp(\\b|\\/)/.test(location.hash)")
    person.press("Control+k")
    person.type_into("Find anything", "build")
    person.press("Enter")
    person.until("location.hash.startsWith('#/build')")
    person.press("g t")
    person.until("location.hash.startsWith('#/tools')")


@pytest.fixture
def guarded(tmp_path, browser):
    """A server with a token of its own, and somebody who opens its page."""
    with harness(tmp_path, token=TOKEN) as served, browser.page(width=1280, height=800) as page:
        yield served, Person(page, served.url)


def test_signing_in_and_out(guarded):
    served, person = guarded
    person.forgive("status of 401")
    person.open().see("Sign in to OneTool").see_no("numbers.add")
    person.type_into("Token", "wrong")
    person.press("Enter")
    person.until("document.getElementById('token-wrong').textContent !== ''")
    assert person.attribute("Token", "aria-invalid") == "true"
    person.type_into("Token", TOKEN)
    person.click("Sign in", role="button")
    person.see("numbers.add")
    person.reload()
    person.see("numbers.add")
    kept = person.value("JSON.stringify(localStorage)")
    assert TOKEN not in kept, "the page keeps a session, not the token"
    person.click("Settings", role="button")
    person.click("Sign out", role="button")
    person.see("Sign in to OneTool").see_no("numbers.add")
    person.press("Control+k")
    person.see_no("numbers.add", "Find anything")
    _ended_elsewhere(served, person)
    assert person.faults() == []
    person.forgive("net::ERR")
    served.server.stop()
    person.see("Reconnecting")


def _ended_elsewhere(served, person):
    """A session that has ended is told where it is used next."""
    person.type_into("Token", TOKEN)
    person.press("Enter")
    person.see("numbers.add")
    session = person.value("JSON.parse(localStorage.getItem('onetool.session'))")
    done = served.api.delete("/login", headers={"Authorization": f"Bearer {session}"})
    assert done.status_code < 300, done.text
    person.press("j")
    person.see("Sign in to OneTool")
    person.type_into("Token", TOKEN)
    person.press("Enter")
    person.see("numbers.add")
