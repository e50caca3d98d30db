"""What is wrong, in a real browser: said with its place and what mends it. And the tour of who is new."""

import json
from contextlib import ExitStack

import httpx
import pytest
from browser.harness import harness
from browser.person import Person
from browser.screens import loaded, look, remember
from browser.test_page_matrix import untranslated, wrong
from cluster.members import Replica
from helpers import until
from interfaces.http.conftest import Served
from interfaces.web.test_built import first_screen
from sources.mcp_servers.harness import Harness

TOKEN = "sesame-token-0123456789"
MARK = "document.querySelector('[data-screen=health] .mark')?.title === '1 change waits to be loaded'"
CLOCK = {"command": "echo", "args": ["<b>tick</b>"], "enabled": False}


@pytest.mark.parametrize("token", [TOKEN, None])
def test_nothing_is_wrong_until_something_is(browser, tmp_path, token):
    with harness(tmp_path, token=token) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url).open("#/health")
        person.forgive("status of 4")  # the broken pack is refused
        if token:
            person.sign_in(token)
        person.see("Trust in this folder", "OneTool ", "No problems found")
        (served.server.folder / "packs" / "broken.py").write_text("def one(:\n")
        person.click("Check again", role="button")
        if token:
            person.see("Error", "broken.py", "1 finding")
            (served.server.folder / "packs" / "broken.py").write_text("def one():\n    return 1\n")
            person.reload()
            person.see("Not loaded: new")
            person.until(MARK)
            person.click("Load it", role="button")
            person.see("No problems found")
            person.until(f"!({MARK})")
        else:  # only an admin has the files read again
            person.see("Not loaded: new", "1 finding")
            person.until(MARK)
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
    assert loaded(newcomer) == first_screen()
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
    server = Served(inside.parent, "--port", "0", real=True, env=env)
    try:
        yield server, inside / "onetool.yaml", request.param
    finally:
        server.stop()


def test_a_folder_is_trusted_by_a_user_who_has_seen_what_it_says(browser, project):
    server, config, token = project
    with browser.page(width=1280, height=800) as page:
        person = Person(page, f"http://127.0.0.1:{server.port}/")
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=BLIND)
        person.forgive("status of 401")
        person.open("#/health")
        if token:
            person.type_into("Token", token)
            person.press("Enter")
        person.see(
            "Trust in this folder",
            "Not trusted",
            "What it says: 3 lines",
            "<b>tick</b>",
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


NO_FINDINGS = """
const original = fetch;
globalThis.fetch = async (url, sent) => {
  const answer = await original(url, sent);
  if (!String(url).endsWith("/check")) return answer;
  return new Response(JSON.stringify({ ...(await answer.json()), findings: [] }), answer);
};
"""


@pytest.mark.parametrize("project", [None], indirect=True)
def test_a_folder_that_is_not_trusted_is_not_fine(browser, project):
    server, *_ = project
    with browser.page(width=1280, height=800) as page:
        person = Person(page, f"http://127.0.0.1:{server.port}/")
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=NO_FINDINGS)
        person.open("#/health").see("Not trusted").see_no("finding")
        assert "No problems found" not in person.text()


# Once `isBlind`, the page doesn't learn that the folder has changed, until something is sent.
BLIND = """((real) => {
  let isSent = false;
  globalThis.reads = 0;
  globalThis.fetch = async (url, sent) => {
    const isRead = (sent?.method ?? "GET") === "GET";
    if (globalThis.isBlind) isSent ||= !isRead;
    if (!isRead || !String(url).endsWith("/trust")) return real(url, sent);
    if (globalThis.isBlind && !isSent) return new Promise(() => {});
    globalThis.reads += 1;
    return real(url, sent).finally(() => (globalThis.reads -= 1));
  };
})(globalThis.fetch)"""


def _trusted(person, config):
    """What has changed since it was shown is shown first."""
    person.forgive("status of 409")
    person.value("void (globalThis.isBlind = true)")
    person.until("globalThis.reads === 0")
    config.write_text(json.dumps({"servers": {"clock": {**CLOCK, "command": "cat"}}}))
    person.click("Trust this folder", role="button")
    person.see("has changed in the meantime", "servers.clock.command: cat", "Not trusted")
    person.click("Trust this folder", role="button")
    person.see("The folder is trusted", "What it says").see_no("Not trusted", "Trust this folder")
    person.press("g s")
    person.see("clock")


# Several replicas


@pytest.fixture
def replicas(tmp_path, database_url):
    """Two over one database, which share a server. The token counts while the database is away, too."""
    more = {"servers": {"ok": Harness(tmp_path).nasty("ok")}, "http": {"token": TOKEN}}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in more.items())
    with ExitStack() as ends:
        made = []
        for name in "ab":
            made.append(Replica(tmp_path / name, database_url, "--drain-s", "8", more=lines))
            ends.callback(made[-1].kill)
        yield made


def test_who_serves_and_whether_the_database_is_reached(browser, postgres, replicas):
    first, second = replicas
    url = f"http://127.0.0.1:{first.port}/"
    with browser.page(width=1280, height=800) as page:
        person = Person(page, url)
        person.forgive("status of 401")
        person.open("#/health")
        person.sign_in(TOKEN).see(
            "Database", "Connected", "2 serving processes", "answered this request", f"127.0.0.1:{second.port}"
        )
        assert wrong(person) == []
        person.open("#/servers?server=ok").see("shared by all replicas, runs in ")
        person.open("#/health").see("2 serving processes")
        second.process.terminate()
        person.see("stopping soon").see("1 serving process").see_no("stopping soon")
        person.forgive("status of 503")
        postgres.stop()
        try:
            person.see("Unreachable", "Tools, lists and search continue.", "1 serving process")
            assert person.value("document.querySelector('main').innerText.split(\"can't be reached\").length") == 2, (
                "once"
            )
            assert wrong(person) == []
            person.open("#/results").see("Could not be read", "Try again")
        finally:
            until(postgres.start_again, 60)  # somebody else may have its port for a moment
        person.see("No result is stored")  # it has tried again by itself
        person.open("#/health").see_no("Unreachable").see("Connected")
        assert person.faults() == []


def test_replicas_in_other_looks(browser, replicas):
    url, session = f"http://127.0.0.1:{replicas[0].port}/", None
    for language, scheme, seen in (("zh-CN", "dark", "2 个进程提供服务"), ("en", "light", "2 serving processes")):
        with browser.page() as page:
            person = Person(page, url)
            session = session or httpx.post(f"{url}login", json={"token": TOKEN}).json()["session"]
            look(person, language, scheme, 375)
            remember(person, "session", session)
            person.open("#/health").see(seen)
            assert [*wrong(person), *untranslated(person, language), *person.faults()] == []
