"""The person at the machine owns the page: from the printed link to a tool with a key, without a terminal."""

import json
import os
import pty
import re
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from browser.harness import METEO, harness, named_token
from browser.person import Person
from browser.screens import look, sign_in
from helpers import cli, until
from upstream import Reply, Upstream

KEY = "meteo-live-0123456789"
EDITOR = "editor-token-0123456789"
BOSS = "boss-token-0123456789ab"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/#k=[A-Za-z0-9_-]{43}")
LOCKED = {
    "type": "http",
    "description": "Needs a host and a key.",
    "argSchema": {"type": "object", "properties": {}},
    "httpImpl": {
        "request": {
            "method": "GET",
            "urlTemplate": "https://api.example.com/now",
            "auth": {"type": "bearer", "value": "${LOCKED_KEY}"},
        }
    },
}


@contextmanager
def at_terminal(folder):
    """`onetool serve` at a terminal, on a fresh home: the link that it prints, and its environment."""
    env = {"ONETOOL_HOME": str(folder / "home"), "HOME": str(folder)}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(env)
        os.execv(sys.executable, [sys.executable, "-m", "onetool", "serve", "--port", "0"])
    shown = b""
    try:
        while b"curl" not in shown:
            shown += os.read(terminal, 65536)
        yield SimpleNamespace(link=LINK.search(shown.decode())[0], env=env, folder=folder)
    finally:
        os.write(terminal, b"\x03")
        os.waitpid(pid, 0)
        os.close(terminal)


def run(machine, code):
    return cli("run", code, cwd=machine.folder, env=machine.env)


def test_a_tool_with_a_key_is_built_allowed_set_tried_called_and_switched_off(browser, tmp_path):
    with (
        Upstream() as api,
        at_terminal(tmp_path) as machine,
        browser.page(width=1280, height=800) as page,
    ):
        api.say(Reply(body=b'{"sky": "clear"}', headers={"Content-Type": "application/json"}))
        url, _, key = machine.link.partition("#")
        person = Person(page, url).open(f"#{key}").see("Owner", "admin")

        person.open("#/build")
        person.click("New bundle")
        person.type_into("Name", "meteo")
        person.press("Control+s")
        person.see("Saved: meteo", "This bundle has no tools yet")
        person.click("New HTTP tool", nth=1)
        person.type_into("URL", f"{api.url}/now")
        person.click("Auth")
        person.choose("Type of auth", "Bearer token")
        person.type_into("Token", "${METEO_KEY}")
        person.click("Make it a secret", role="button")
        person.see("key METEO_KEY")
        person.press("Control+s")
        person.type_into("Name", "now")
        person.click("Save", role="button", nth=-1)
        person.see("Saved: now 1")

        person.open("#/tools")
        person.click("meteo.now", role="link")
        person.click("Run", role="button")
        person.see("It needs:", f"host {api.netloc} · key METEO_KEY")
        assert person.axe() == []
        person.click(f"Allow {api.netloc}", role="button")
        person.see(f"{api.netloc} is allowed")
        person.type_into("key METEO_KEY", KEY)
        person.click("Set", role="button")
        person.see("METEO_KEY is set")
        person.click("Try again", role="button")
        person.see("clear").see_no("It needs:")
        assert api.seen[0].headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in person.value(
            "document.documentElement.outerHTML + JSON.stringify({...localStorage, ...sessionStorage})"
        )

        called = run(machine, "meteo.now()")
        assert (called.returncode, json.loads(called.stdout)) == (0, {"sky": "clear"}), called
        person.click("Switch meteo.now on or off", role="switch", nth=0)
        until(lambda: run(machine, "meteo.now()").returncode != 0)
        assert "meteo.now" in run(machine, "meteo.now()").stderr
        assert len(api.seen) == 2
        assert person.faults() == []


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A server with tokens, and a tool that lacks a host and a key."""
    tokens = [named_token("editor", EDITOR, "edit"), named_token("boss", BOSS, "admin")]
    http = {"tokens": tokens}
    with harness(tmp_path_factory.mktemp("team"), token="sesame-token-0123456789", http=http) as one:
        one.put_tool(METEO, "locked", LOCKED)
        until(lambda: "meteo.locked" in one.tools())
        yield one


@pytest.fixture
def someone(browser, team):
    with browser.page(width=1280, height=800) as page:
        one = Person(page, team.url)
        yield one
        assert one.faults() == [], "the browser complained"


COMMANDS = ("onetool hosts allow api.example.com", "onetool auth set LOCKED_KEY --host api.example.com")


def test_who_is_no_admin_sees_the_same_commands_everywhere(someone):
    someone.open(f"#/tools?tool={METEO}/locked/1&tab=try").sign_in(EDITOR)
    someone.click("Run", role="button")
    someone.see("It needs: host api.example.com · key LOCKED_KEY", *COMMANDS, "Copy").see_no("Allow")
    assert someone.axe() == []
    someone.open("#/health").see("needs the secret LOCKED_KEY, which is not set", *COMMANDS)
    assert someone.axe() == []
    someone.open("#/build?import=1")
    someone.type_into("Or paste", "curl https://new.example.com/v1 -H 'Accept: text/plain'")
    someone.see("It needs: host new.example.com", "onetool hosts allow new.example.com")
    assert someone.axe() == []


def test_what_is_set_in_the_terminal_works_at_the_next_try(someone, team):
    request = {"urlTemplate": f"{team.upstream.url}/near", "headers": {"X-Key": "${NEAR_KEY}"}}
    team.put_tool(METEO, "near", {**LOCKED, "httpImpl": {"request": request}})
    until(lambda: "meteo.near" in team.tools())
    someone.open(f"#/tools?tool={METEO}/near/1&tab=try").sign_in(EDITOR)
    someone.click("Run", role="button")
    someone.see("It needs: key NEAR_KEY")
    folder = team.server.folder
    options = ("--host", team.upstream.url, "--config", str(folder / "onetool.yaml"))
    done = cli("auth", "set", "NEAR_KEY", *options, cwd=folder, stdin=KEY, env={"ONETOOL_HOME": str(folder / "home")})
    assert done.returncode == 0, done.stderr
    someone.click("Try again", role="button")
    someone.see("clear").see_no("It needs:")


def test_an_admin_lists_and_revokes_tokens_and_the_owner_adds_them(someone, team, browser):
    someone.open().sign_in(BOSS)
    someone.click("Settings", role="button")
    someone.see("Tokens", "editor", "To add tokens, open the page with this command:", "onetool page")
    assert someone.axe() == []
    folder = team.server.folder
    link = cli("page", cwd=folder, env={"ONETOOL_HOME": str(folder / "home")}).stdout.strip()
    with browser.page(width=1280, height=800) as page:
        owner = Person(page, team.url).open(f"#{link.partition('#')[2]}").see("Owner")
        owner.click("Settings", role="button")
        owner.see("Tokens", "boss")
        owner.type_into("Name", "ci")
        owner.click("Add", role="button")
        owner.see("This token is shown only now: copy it.", "ot_")
        assert owner.axe() == []
        token = re.search(r"ot_[A-Za-z0-9_-]{43}", owner.text())[0]
        assert team.api.get("/tools/tools", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        owner.click("Revoke ci", role="button")
        owner.click("Revoke ci permanently", role="button")
        owner.see("revoked")
        assert team.api.get("/tools/tools", headers={"Authorization": f"Bearer {token}"}).status_code == 401
        assert owner.faults() == []


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_nothing_is_wrong_with_the_card_and_the_tokens_in_any_look(browser, team, language):
    found = {}
    for scheme in ("light", "dark"):
        for width in (1280, 768, 375):
            with browser.page(width=width, height=800) as page:
                person = Person(page, team.url)
                look(person, language, scheme, width)
                sign_in(person, team)
                person.open(f"#/tools?tool={METEO}/locked/1&tab=try")
                person.until("document.querySelector('.bar button.primary') !== null")
                person.page.click(".bar button.primary")
                person.until("document.querySelector('.missing form input') !== null")
                found[scheme, width, "card"] = person.axe()
                person.open("#/health", "document.querySelector('.missing form input') !== null")
                found[scheme, width, "health"] = person.axe()
                person.page.click("nav .bottom button:not(.who)")
                person.until("document.querySelector('dialog .one') !== null")
                found[scheme, width, "tokens"] = person.axe()
                assert person.faults() == []
    assert {place: wrong for place, wrong in found.items() if wrong} == {}
