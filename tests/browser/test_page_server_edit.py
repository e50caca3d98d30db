"""A server on a fresh home, from the first paste to its removal, in a real browser with a real MCP server."""

import json
import sys
from pathlib import Path

import pytest
from browser.chromium import chromium
from browser.harness import harness
from browser.person import Person
from sources.mcp_servers.authority import Authority

TOKEN = "sesame-token-0123456789"
SERVER = Path(__file__).parents[1] / "sources" / "mcp_servers" / "nasty" / "offers.py"
PASTE = "A command, a URL, or the mcpServers of another client"
SECRET = "ghp_0123456789abcdefABCDEF"


@pytest.fixture
def guarded(tmp_path, browser):
    (tmp_path / "secrets.yaml").touch(0o600)
    with (
        harness(tmp_path, token=TOKEN, secrets="secrets.yaml") as served,
        browser.page(width=1280, height=800) as page,
    ):
        yield served, Person(page, served.url)


def test_a_server_is_added_edited_renamed_tested_switched_removed_and_brought_back(guarded, tmp_path):
    served, person = guarded
    person.open("#/servers").sign_in(TOKEN).see("There are no MCP servers yet")
    person.click("Add servers", role="link")
    env = {"GREETING": "hi\u200bthere", "API_TOKEN": SECRET}
    block = {"command": sys.executable, "args": [str(SERVER), "a b"], "env": env}
    person.type_into(PASTE, json.dumps({"mcpServers": {"uno": block}}))
    person.see("uno runs:", f"{sys.executable} {SERVER} 'a b'", "env GREETING=hi\\u200bthere")
    person.see("env API_TOKEN=${UNO_API_TOKEN}")
    person.see("Stored in the secrets file: UNO_API_TOKEN")
    assert person.axe() == []
    assert "uno" not in served_names(served), "nothing is started before it is confirmed"
    person.click("Add and start", role="button")
    person.see("Added: uno", "Connected", "uno.one")
    assert SECRET not in person.text()
    assert SECRET in (tmp_path / "secrets.yaml").read_text()

    person.click("Prompts (1)", role="tab")
    person.see("uno.ask", "place")
    person.click("Resources (2)", role="tab")
    person.see("notes://today", "notes://day/{day}")
    person.click("Test", role="button")
    person.see("Responded in", "with 1 tool")
    person.click("Log", role="tab")
    person.see("hello a b")

    person.click("Settings", role="tab")
    person.see("Defined in", "uno runs:")
    assert person.axe() == []
    person.type_into("Arguments", f"{SERVER}\nc d")
    person.see(f"{SERVER} 'c d'")
    person.click("Save and restart", role="button")
    person.see("Saved: uno")
    person.click("Log", role="tab")
    person.see("hello c d")
    person.click("Settings", role="tab")
    person.type_into("Name of the server", "due")
    person.click("Rename", role="button")
    person.see("Renamed to due")
    person.click("Tools", role="tab")
    person.see("due.one", "Connected")

    person.click("Switch due on or off", role="switch")
    person.see("due is off now")
    person.click("Switch due on or off", role="switch")
    person.see("due is on now", "Connected")
    person.click("Settings", role="tab")
    person.click("Remove it", role="button")
    person.see("Removed: due", "There are no MCP servers yet")
    assert "due" not in served_names(served)
    person.click("Undo", role="button", nth=-1)
    person.see("Restored: due", "1 server", "Connected")
    assert person.faults() == []


def test_a_server_is_added_by_the_form_with_a_value_kept_as_a_secret(guarded, tmp_path):
    _, person = guarded
    person.open("#/servers?add=1").sign_in(TOKEN)
    person.click("Fill in a form", role="button")
    person.type_into("Name of the server", "uno")
    person.type_into("Program", sys.executable)
    person.type_into("Arguments", str(SERVER))
    person.click("+ Variable", role="button")
    person.type_into("Environment: name 1", "GREETING")
    person.type_into("Value of GREETING", "kept-value-1")
    person.click("Keep it as a secret", role="checkbox")
    person.see("uno runs:", "env GREETING=${GREETING}", "Stored in the secrets file: GREETING")
    assert person.axe() == []
    person.click("Add and start", role="button")
    person.see("Added: uno", "Connected")
    assert "kept-value-1" in (tmp_path / "secrets.yaml").read_text()
    person.open("#/servers?add=1")
    person.type_into(PASTE, "no-such-program --now")
    person.see("no-such-program --now", "program: not found at present")
    person.click("Add and start", role="button")
    person.see("Unreachable", "2 servers")
    person.click("Test", role="button")
    person.see("no-such-program")
    assert person.faults() == []


def test_connect_opens_the_login_of_a_server(guarded):
    _, person = guarded
    with Authority() as authority:
        person.open("#/servers?add=1").sign_in(TOKEN)
        person.type_into(PASTE, authority.url)
        person.type_into("Name of the server", "vault")
        person.see("vault is called at:", authority.url)
        person.click("Add and start", role="button")
        person.see("Needs a login")
        person.click("Log in", role="button")
        person.see("Connected").see_no("Needs a login")  # the window that was opened needs nobody to type


def test_on_another_machine_the_page_gives_the_command_for_a_login(browser, tmp_path):
    host = "onetool.localhost"  # any name but those that stand for this machine
    with (
        Authority() as authority,
        harness(tmp_path, token=TOKEN, http={"hosts": [host]}, servers={"vault": {"url": authority.url}}) as served,
        chromium(host) as other,
        other.page(width=1280, height=800) as page,
    ):
        person = Person(page, served.url.replace("127.0.0.1", host))
        person.open("#/servers?server=vault").sign_in(TOKEN)
        person.see("Needs a login", "Run this command there:", "onetool servers login vault")
        assert "Log in" not in person.names("button")


def served_names(served):
    return [one["name"] for one in served.api.get("/servers").json()["servers"]]
