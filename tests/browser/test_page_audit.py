"""The audit log in a real browser: who did what, found by filters, page after page; and what is in its way is said."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from browser.harness import harness
from browser.person import Person

TOKEN = "sesame-token-0123456789"
HOSTILE = "<b>web</b>\u202e.get"
CALL = {
    "time": "2026-11-16T17:03:18.123Z",
    "kind": "call",
    "what": "web.get",
    "outcome": "ok",
    "who": "ci",
    "role": "call",
    "from": "10.1.2.3",
    "via": "mcp",
    "client": "claude-code",
    "ms": 123.4,
    "args": "3fa9c1d2e4b5a697",
    "run": "r-77aa",
}
REFUSAL = {"time": "2026-11-16T17:02:18.123Z", "kind": "refusal", "what": HOSTILE, "outcome": "tool_not_found"}
LOCAL = {**CALL, "time": "2026-11-16T17:01:18.123Z", "what": "fs.read_file", "who": "", "role": "admin", "via": "cli"}
OLDER = {**CALL, "time": "2026-11-15T17:03:18.123Z", "what": "older.call"}
USUAL = {"enabled": True, "records": [CALL, REFUSAL, LOCAL], "nextPageToken": "two", "skipped": 0, "lost": 0}
ANSWERS = {"": USUAL, "two": USUAL | {"records": [OLDER], "nextPageToken": None}}
# Stands for the route: it answers by the page's token, and keeps what it was asked.
STAND_IN = """((real, said) => {
  globalThis.asked = [];
  globalThis.fetch = (url, sent) => {
    if (!new URL(url).pathname.endsWith('/audit')) return real(url, sent);
    asked.push(String(url));
    const found = said[new URL(url).searchParams.get('pageToken') ?? ''];
    return Promise.resolve(new Response(JSON.stringify(found), {status: found.status ?? 200}));
  };
})(globalThis.fetch, SAID)"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with harness(tmp_path_factory.mktemp("guarded"), token=TOKEN) as one:
        yield one


@pytest.fixture
def admin(person, served):
    """Somebody who has signed in, and for whom the route answers with this."""

    def opens(said, place="#/audit"):
        source = STAND_IN.replace("SAID", json.dumps(said))
        session = f"localStorage.setItem('onetool.session', {json.dumps(json.dumps(served.session()))})"
        person.page.ask("Page.addScriptToEvaluateOnNewDocument", source=f"{session};{source}")
        return person.open(place)

    return opens


def asked(person):
    """The last question: its parameters."""
    return {name: one for name, (one,) in parse_qs(urlsplit(person.value("asked.at(-1)")).query).items()}


def test_the_log_is_read_page_after_page(admin):
    person = admin(ANSWERS).see("3 entries, newest first", "web.get", "ci", "tool_not_found", "123 ms")
    person.see("10.1.2.3 · mcp · claude-code", "args 3fa9c1d2e4b5a697 · run r-77aa", "this machine")
    person.see("<b>web</b>⟨U+202E⟩.get")
    assert person.value("document.querySelector('main td b') === null")
    assert person.axe() == []
    person.click("Older entries", role="button")
    person.see("4 entries", "older.call").see_no("Older entries")
    assert asked(person) == {"pageToken": "two"}


def test_filters_are_asked_for_and_stand_in_the_address(admin):
    person = admin(ANSWERS).see("web.get")
    person.click("ci", role="link")
    person.until("asked.at(-1).includes('who=ci')")
    person.choose("Kind", "Refusal")
    person.type_into("What", "web.*")
    person.press("Enter")
    person.choose("Outcome", "Failed")
    person.value(
        "void ((one) => { one.value = '2026-11-16T12:00'; one.dispatchEvent(new Event('change', {bubbles: true})) })"
        "(document.querySelector('input[type=datetime-local]'))"
    )
    person.until("asked.at(-1).includes('since=')")
    found = asked(person)
    since = person.value("new Date('2026-11-16T12:00').toISOString()")
    assert found == {"who": "ci", "kind": "refusal", "tool": "web.*", "outcome": "error", "since": since}
    person.reload()
    person.until("asked.length > 0")
    assert asked(person) == found
    person.click("Clear filters", role="button")
    person.until("!asked.at(-1).includes('?')")


def test_what_has_failed_is_red_and_nothing_else_is(admin):
    outcomes = ("ok", "approved", "declined", "begun", "tool_not_found", "constructor")
    records = [CALL | {"outcome": outcome, "kind": "approval"} for outcome in outcomes]
    person = admin({"": USUAL | {"records": records}}).see("6 entries")
    red, green = (
        person.value(f"[...document.querySelectorAll('td .badge.{one}')].map((one) => one.innerText)")
        for one in ("bad", "good")
    )
    assert (red, green) == (["tool_not_found", "constructor"], ["ok", "approved"])


@pytest.mark.parametrize(
    ("said", "place", "seen"),
    [
        (USUAL | {"records": [], "nextPageToken": None}, "#/audit", ["Nothing is logged yet"]),
        (USUAL | {"records": [], "nextPageToken": None}, "#/audit?who=x", ["No entry matches these filters"]),
        (USUAL | {"records": []}, "#/audit?who=x", ["Nothing found so far", "Older entries"]),
        ({"enabled": False, "records": [], "nextPageToken": None, "lost": 0}, "#/audit", ["The audit log is off"]),
        (USUAL | {"lost": 3, "problem": "No space <b>left</b>"}, "#/audit", ["3 entries could not be", "<b>left</b>"]),
        (
            {"status": 503, "code": "unavailable", "detail": "It can't be read."},
            "#/audit",
            ["It can't be read.", "Try"],
        ),
    ],
)
def test_what_there_is_to_say_without_a_list(admin, said, place, seen):
    person = admin({"": said}, place).see(*seen)
    assert person.axe() == []


def test_it_fits_a_phone_and_is_reached_by_keys(browser, served, admin, person):
    person.page.look(375, 700, "dark")
    admin(ANSWERS, "#/tools").see("numbers.add")
    person.press("g l")
    person.see("3 entries")
    assert [*person.overflow(), *person.axe()] == []


def test_others_are_told_why_they_see_none(browser, tmp_path):
    with harness(tmp_path) as served, browser.page() as page:
        person = Person(page, served.url).open("#/audit").see("Audit needs the role admin.", "onetool page")
        assert person.value("document.querySelector('nav [data-screen=audit]') === null")
        person.press("g l")
        assert person.faults() == [], "the server was not asked"
