"""What the page shows follows the server: who one is, which models there are, and errors that are over."""

import json
import signal
import sys

import pytest
from browser.harness import asks, harness
from browser.person import Person
from browser.test_page_servers import SERVER
from helpers import cli

TOKEN = "sesame-token-0123456789"


def owner_link(served):
    folder = served.server.folder
    done = cli("page", cwd=folder, env={"ONETOOL_HOME": str(folder / "home")})
    return f"#{done.stdout.strip().partition('#')[2]}"


def test_after_a_restart_the_page_shows_what_one_may_now(browser, tmp_path):
    """The link was good for the server that made it. Without a token, everybody on this machine may edit."""
    block = {"uno": {"command": "no-such-program"}}
    with harness(tmp_path, servers=block) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.forgive("status of 401")
        person.forgive("ERR_")
        person.open(owner_link(served)).see("Owner", "admin")
        person.open("#/servers").see("uno", "Add servers")
        served.vanish()
        person.see("Reconnecting")
        served.come_back()
        person.see("uno").see_no("Owner", "Add servers", within=60)
        assert person.faults() == []


def test_an_error_goes_when_the_next_action_succeeds(browser, tmp_path):
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps([{"name": "one", "description": "One.", "inputSchema": {"type": "object"}}]))
    env = {"DEFINITIONS": str(definitions)}
    blocks = {
        "uno": {"command": sys.executable, "args": [str(SERVER), "now"], "env": env},
        "gone": {"command": "no-such-program"},
    }
    shown = "[...document.querySelectorAll('.notice.error')].length"
    with harness(tmp_path, token=TOKEN, servers=blocks) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.forgive("status of 401")
        person.open("#/servers?server=gone").sign_in(TOKEN)
        person.click("Reconnect", role="button")
        person.until(f"{shown} === 1", "it is told that the server can't be reached")
        person.click("Reconnect", role="button")
        person.until(f"{shown} === 2", "what fails takes nothing away")
        person.open("#/servers?server=uno")
        person.click("Reconnect", role="button")
        person.until(f"{shown} === 0", "the errors are over")
        assert person.faults() == []


def test_chat_lists_the_models_of_the_config_that_counts(browser, model, tmp_path):
    usual = "document.querySelector('input[list$=\"-models\"]')?.placeholder"
    with harness(tmp_path, **asks(tmp_path, model)) as served, browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.open("#/chat").see("Ask anything")
        person.until(f"{usual} === 'stand-in'")
        file = served.server.folder / "onetool.yaml"
        text = file.read_text().replace('"model": "stand-in"', '"model": "another-model"')
        assert "another-model" in text
        file.write_text(text)
        served.server.process.send_signal(signal.SIGHUP)
        person.until(f"{usual} === 'another-model'", "the page has read the models again")
        assert person.faults() == []


@pytest.mark.parametrize("width", [880, 375])
def test_the_first_cards_stand_below_the_list_on_a_narrow_page(browser, tmp_path, width):
    with harness(tmp_path) as served, browser.page(width=width, height=800) as page:
        person = Person(page, served.url)
        person.open("#/tools").see("numbers.add", "Create a tool", "Connect your agent")
        spots = "['.side', '.detail'].map((one) => document.querySelector(one).getBoundingClientRect())"
        person.until(f"(([list, cards]) => list.height > 200 && cards.top >= list.bottom - 1)({spots})")
        assert person.overflow() == []
        assert person.axe() == []
        person.click("numbers.add")
        person.see_no("Connect your agent")
        person.open("#/tools").see("Connect your agent")
        person.click("Hide the first steps", role="button")
        person.until("getComputedStyle(document.querySelector('.detail')).display === 'none'")
        assert person.faults() == []
