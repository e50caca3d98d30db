"""Who one is and what one may, in a real browser. What a role may not is not offered: no click ends in a refusal."""

import json
import re
import sys

import pytest
from browser.harness import METEO, harness, named_token
from browser.person import Person
from helpers import cli

TOKEN = "sesame-token-0123456789"
TOKENS = {"caller": "caller-token-0123456789", "editor": "editor-token-0123456789", "boss": "boss-token-0123456789ab"}
CLOCK = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
FORECAST = f"{METEO}/forecast/1"
PLACES = (
    "tools",
    *(f"tools?tool={FORECAST}&tab={tab}" for tab in ("try", "about", "usage", "versions")),
    "chat",
    "build",
    f"build?tool={FORECAST}",
    f"build?bundle={METEO}",
    "build?import=1",
    "play",
    f"recipe?tool={METEO}/report/1",
    "servers",
    "servers?server=clock",
    "servers?server=clock&tab=log",
    "results",
    "stats",
    "health",
    "audit",
)
REFUSED = ("role_needed", "token_needed", "read_only")
# Every button, switch and tab of a screen, one after the other, as long as they are there and can be used.
CLICKS = """(async () => {
  const done = [];
  const seen = '#main button, #main [role=switch], #main [role=tab], #main summary, dialog[open] button';
  const name = (one) => one.getAttribute('aria-label') ?? one.innerText.trim();
  const find = () => [...document.querySelectorAll(seen)]
    .find((one) => one.checkVisibility() && !one.disabled && !done.includes(name(one)));
  for (let n = 0; n < 40; n++) {
    for (let wait = 0; wait < 20 && !find(); wait++) await new Promise((ready) => setTimeout(ready, 50));
    const next = find();
    if (!next) break;
    done.push(name(next));
    next.click();
    await new Promise((ready) => setTimeout(ready, 60));
    for (const one of document.querySelectorAll('dialog[open]')) one.close();
    if (location.hash !== PLACE) location.hash = PLACE;
  }
  await new Promise((ready) => setTimeout(ready, 300));
  return done;
})()"""


def config():
    tokens = [
        named_token("caller", TOKENS["caller"], "call", tools=["numbers.*", "meteo.forecast"]),
        named_token("editor", TOKENS["editor"], "edit", expires="2099-01-01"),
        named_token("boss", TOKENS["boss"], "admin"),
    ]
    return {"token": TOKEN, "http": {"tokens": tokens}, "servers": {"clock": CLOCK}}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with harness(tmp_path_factory.mktemp("team"), **config()) as one:
        yield one


def signed_in(person, name, place=""):
    return person.open(place).sign_in(TOKENS[name])


def links(person):
    return person.value("[...document.querySelectorAll('nav [data-screen]')].map((one) => one.dataset.screen)")


def refused(person):
    """What the server has refused because of who one is. A tool that is switched off is refused, too: not counted."""
    answers = [one for one in person.page.told("Network.responseReceived") if one["response"]["status"] == 403]
    said = {one["response"]["url"]: _body(person, one["requestId"]) for one in answers}
    return [url for url, body in said.items() if any(code in body for code in REFUSED)]


def _body(person, request):
    return person.page.ask("Network.getResponseBody", requestId=request)["body"]


def reload(served):
    done = served.api.post("/call/ot.reload", json={})
    assert done.status_code == 200, done.text


def test_one_sees_who_one_is_and_what_one_may(person):
    signed_in(person, "caller").see("caller", "numbers.add")
    person.click("Settings", role="button")
    person.see("You", "may call tools", "May call:", "numbers.*", "meteo.forecast", "This session ends")
    assert person.axe() == []
    person.press("Escape")
    person.open("#/build").see("Build needs the role edit. caller has the role call: ask an admin.").see_no(
        "tokens add"
    )
    assert "build" not in links(person)
    assert "audit" not in links(person)
    assert person.axe() == []
    person.click("Settings", role="button")
    person.click("Sign out", role="button")
    person.see("Sign in to OneTool")
    person.sign_in(TOKENS["boss"]).see("boss", "Audit")
    assert {"build", "health", "audit"} <= {*links(person)}


@pytest.mark.parametrize(("name", "steps"), [("caller", 3), ("editor", 5), ("boss", 6)])
def test_the_tour_fits_the_role(browser, served, name, steps):
    with browser.page(width=1280, height=800) as page:
        person = Person(page, served.url, is_new=True)
        signed_in(person, name).see("Every tool in one list", f"1 / {steps}")
        assert ("switch tools on and off" in person.text()) == (name != "caller")
        for number in range(2, steps + 1):
            person.press("Enter")
            person.see(f"{number} / {steps}")
            person.until("document.querySelector('.pointed') !== null")
        assert person.faults() == []


def test_without_a_token_one_may_edit_and_is_told_how_to_get_further(browser, tmp_path):
    with (
        harness(tmp_path, servers={"clock": CLOCK}) as served,
        browser.page(width=1280, height=800) as page,
    ):
        person = Person(page, served.url).open("#/servers?server=clock")
        person.see("Without a token", "This needs the role admin.", "onetool page", "clock.")
        assert person.names("switch") == []
        assert not {"Reconnect", "Log in", "Add servers"} & {*person.names("button"), *person.names("link")}
        assert person.names("tab") == ["Tools"]
        assert {"build", "health"} <= {*links(person)}
        assert "audit" not in links(person)
        assert person.axe() == []
        person.open("#/audit").see("Audit needs the role admin.", "onetool page")
        person.open("#/tools").see("numbers.add")
        assert person.names("switch") != []
        assert refused(person) == []
        assert person.faults() == []


def test_a_server_that_is_for_calls_only_says_so(browser, tmp_path):
    with harness(tmp_path, token=TOKEN, http={"admin": True}) as served, browser.page() as page:
        file = served.server.folder / "onetool.yaml"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"http": {"admin": False}}))
        reload(served)
        person = Person(page, served.url).open("#/build").see("Build needs the role edit.", "only accepts calls")
        assert not {"build", "health", "audit"} & {*links(person)}
        assert person.faults() == []


def test_an_admin_of_a_server_that_becomes_one_for_calls_only_is_told_so(browser, tmp_path):
    with harness(tmp_path, **config()) as served, browser.page(width=1280, height=800) as page:
        person = signed_in(Person(page, served.url), "boss", "#/tools").see(
            "numbers.add", "Key of openai", 'mcpServers"'
        )
        file = served.server.folder / "onetool.yaml"
        given = json.loads(file.read_text())
        file.write_text(json.dumps(given | {"http": {**given["http"], "admin": False}}))
        reload(served)
        person.forgive("status of 403")
        person.click("Switch weather on or off", role="switch")
        person.until("document.querySelector('nav [data-screen=build]') === null")
        person.open("#/build").see("Build needs the role edit.", "only accepts calls").see_no("ask an admin")
        assert person.faults() == []


def test_servers_are_imported_by_admins(person):
    signed_in(person, "editor", "#/build?import=1")
    person.type_into("Or paste", json.dumps({"mcpServers": {"till": {"url": "http://127.0.0.1:9/mcp"}}}))
    person.see("Importing MCP servers needs the role admin. editor has the role edit: ask an admin.").see_no(
        "Import this"
    )
    person.type_into("Or paste", "curl https://api.example.com/v1/rain?city=Oslo")
    person.see("Import this").see_no("needs the role")
    assert refused(person) == []


def test_a_role_that_a_reload_has_taken_away_is_seen_with_the_next_refusal(person, served):
    file = served.server.folder / "onetool.yaml"
    before = file.read_text()
    signed_in(person, "editor", "#/tools").see("numbers.add")
    file.write_text(before.replace('"role": "edit"', '"role": "call"'))
    try:
        reload(served)
        person.forgive("status of 403")
        person.click("Switch weather on or off", role="switch")
        person.until("document.querySelector('nav [data-screen=build]') === null")
        person.see("This needs the role edit, and editor has the role call")
        assert person.names("switch") == []
    finally:
        file.write_text(before)
        reload(served)


@pytest.mark.parametrize("role", ["caller", "editor", "boss", None])
def test_nothing_that_is_offered_is_refused(browser, tmp_path, role):
    given = config() if role else {"servers": {"clock": CLOCK}}
    with harness(tmp_path, **given) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.open().sign_in(TOKENS[role]) if role else person.open()
        person.see("numbers.add")
        clicked = {}
        for place in PLACES:
            person.open(f"#/{place}", "document.querySelector('#main :is(h1, h2, p)') !== null")
            person.until("!document.querySelector('[aria-busy=true]')")
            clicked[place] = person.value(CLICKS.replace("PLACE", json.dumps(f"#/{place}")))
        assert refused(person) == [], clicked
        assert sum(map(len, clicked.values())) > 20, clicked


# The owner, who came by a link of `onetool page`


WATCH = """globalThis.__loaded = [];
new PerformanceObserver((list) => list.getEntries().forEach((one) => __loaded.push([one.name, location.hash])))
  .observe({ type: "resource", buffered: true });"""


def new_link(served, *args):
    done = cli("page", *args, cwd=served.server.folder, env={"ONETOOL_HOME": str(served.server.folder / "home")})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def key_of(link):
    return link.partition("/#")[2]


@pytest.fixture
def opened(browser, tmp_path):
    """A server without tokens, and somebody with a browser."""
    with harness(tmp_path) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        yield served, person
        assert person.faults() == []


def test_a_link_makes_one_the_owner_in_this_tab(browser, opened):
    served, person = opened
    link = new_link(served)
    person.page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    person.open(f"#{key_of(link)}").see("Owner", "admin", "Audit", "numbers.add")
    assert key_of(link) not in person.value("location.href + JSON.stringify(history.state)")
    late = [hash for name, hash in person.value("__loaded") if not re.search(r"/(index|link|icon)-", name)]
    assert len(late) > 3
    assert set(late) <= {"", "#/tools"}  # gone before the rest of the page was there
    kept = person.value("[sessionStorage['onetool.session'], localStorage['onetool.session'] ?? null, document.cookie]")
    assert kept[0].startswith('"ots_')
    assert kept[1:] == [None, ""]
    person.click("Settings", role="button")
    person.see("may do everything", "This session ends", "Sign out")
    assert person.axe() == []
    person.press("Escape")
    person.reload()
    person.see("Owner")  # as long as the tab is there
    with browser.page(width=1280, height=800) as other:
        stranger = Person(other, served.url).open().see("Without a token", "numbers.add")
        stranger.forgive("401")
        stranger.open(f"#{key_of(link)}").see("This link was used", "Without a token")
        assert stranger.place != f"#{key_of(link)}"


def test_a_link_may_be_pasted_into_an_open_tab(opened):
    served, person = opened
    person.open().see("Without a token", "numbers.add")
    person.value(f"void (location.hash = {json.dumps(key_of(new_link(served)))})")
    person.see("Owner")
    assert "k=" not in person.place


def test_signing_out_the_owner_leaves_the_page_open(opened):
    served, person = opened
    person.open(f"#{key_of(new_link(served))}").see("Owner")
    person.click("Settings", role="button")
    person.click("Sign out", role="button")
    person.see("Without a token", "numbers.add").see_no("Owner", "Sign in to OneTool")
    assert "audit" not in links(person)
    assert person.value("sessionStorage['onetool.session'] ?? null") is None


def test_the_file_for_the_browser_leads_to_the_page(opened, tmp_path):
    served, person = opened
    browser = tmp_path / "browser.sh"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    home = served.server.folder / "home"
    done = cli("page", "--open", cwd=home, env={"ONETOOL_HOME": str(home), "BROWSER": str(browser)})
    assert (done.returncode, done.stdout) == (0, ""), done
    person.page.ask("Page.navigate", url=(home / "open-page.html").as_uri())
    person.see("Owner", "numbers.add")


def test_where_tokens_are_needed_a_link_opens_the_page_too(person, served):
    person.open(f"#{key_of(new_link(served))}").see("Owner", "Audit")
    person.click("Settings", role="button")
    person.click("Sign out", role="button")
    person.see("Sign in to OneTool")


def test_with_local_access_one_can_still_sign_in(browser, tmp_path):
    http = {"local": "call", "tokens": [named_token("boss", TOKENS["boss"], "admin")]}
    with harness(tmp_path, token=TOKEN, http=http) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url).open("#/build").see("Without a token", "call", "onetool page")
        person.click("Settings", role="button")
        person.click("Sign in", role="button")
        person.sign_in(TOKENS["boss"]).see("boss", "Audit")
        person.click("Settings", role="button")
        person.click("Sign out", role="button")
        person.see("Without a token").see_no("Audit")
        assert person.faults() == []


def test_only_a_click_that_begins_beside_a_dialog_closes_it(person):
    def press(x, y, to):
        for kind, at in (("mousePressed", (x, y)), ("mouseReleased", to)):
            person.page.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    person.open().sign_in(TOKENS["boss"]).see("boss")
    person.click("Settings", role="button")
    person.see("Sign out")
    box = "(b => [b.x + b.width / 2, b.y + 20])(document.querySelector('dialog h2').getBoundingClientRect())"
    inside, beside = person.value(box), (4, 4)
    press(*inside, to=beside)  # a selection that ends outside
    person.see("Sign out")
    press(*beside, to=beside)
    person.see_no("Sign out")
