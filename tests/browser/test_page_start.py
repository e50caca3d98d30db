"""The first visit: from an empty home to a server, a tool and a model that uses it, without a terminal."""

import json

import pytest
from ask.stand_in import Says, StandIn, Wants
from browser.screens import first_visit, loaded, look, start
from interfaces.web.test_built import first_screen
from upstream import Reply, Upstream

KEY = "sk-stand-in-0123456789"
SECRET = "meteo-live-0123456789"


def test_a_server_a_tool_and_a_model_on_a_fresh_home(browser, tmp_path):
    with Upstream() as api, StandIn() as model:
        api.say(Reply(body=b'{"sky": "clear"}', headers={"Content-Type": "application/json"}))
        ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
        with first_visit(browser, tmp_path, ask=ask) as person:
            person.open(person.key).see("Import your MCP servers", "Create a tool", "Ask a model", "Connect your agent")
            assert person.axe() == []

            # A server that Claude Code has
            person.click("Look for servers", role="button")
            person.see("Claude Code", "-m mcp_server_time")
            assert person.axe() == []
            person.click("clock", role="checkbox")
            person.click("Import 1 server", role="button")
            person.see("Imported: clock")
            person.click("Tools of clock", role="link")
            person.see("get_current_time")
            assert "mcp_server_time" in (person.home / "onetool.yaml").read_text()

            # A tool of a curl command, whose key gets another name
            person.open("#/tools")
            command = f"curl -H 'Authorization: Bearer {SECRET}' '{api.url}/v1/sky?city=Rome'"
            person.type_into("A URL, a curl command or an OpenAPI document", command)
            person.click("Continue", role="button")
            person.see("What would be imported")
            assert person.reads("Bundle") == "local"
            assert person.axe() == []
            person.type_into("Name of secret 1", "SKY_KEY")
            person.press("Tab")
            person.click("Import this", role="button")
            person.see("local.sky", "Try it", f"It needs: host {api.netloc}")
            person.click(f"Allow {api.netloc}", role="button")
            person.see_no("It needs:")
            person.click("Run", role="button")
            person.see("clear")
            assert api.seen[0].headers["authorization"] == f"Bearer {SECRET}"
            assert "SKY_KEY" in (person.home / "secrets.yaml").read_text()

            # A model that uses the tool
            model.will(Says("I look.", calls=[Wants("local__sky", {"city": "Rome"})]), Says("It is clear in Rome."))
            person.open("#/chat").see("No model is set up")
            person.type_into("Key of openai", KEY)
            assert person.axe() == []
            person.click("Set the key of openai", role="button")
            person.see("Ask anything")
            person.until(
                "[...document.querySelectorAll('datalist option')].some((one) => one.value === 'stand-in-small')"
            )
            person.ask("How is the sky in Rome?")
            person.see("It is clear in Rome.")
            assert len(api.seen) == 2
            assert not [one for one in model.refused if one.seen.headers.get("authorization")]

            # All but the agent's entry are ticked, and cards can be dismissed
            person.open("#/tools").see("Connect your agent")
            person.until("document.querySelectorAll('main .tick').length === 3")
            person.see("/mcp")
            person.click("Dismiss: Create a tool", role="button")
            person.see_no("A URL, a curl command or an OpenAPI document").reload()
            person.see("Ask a model").see_no("Dismiss: Create a tool")
            kept = "document.documentElement.outerHTML + JSON.stringify({...localStorage, ...sessionStorage})"
            assert KEY not in person.value(kept)


def test_a_wrong_key_is_replaced_in_settings(browser, tmp_path):
    with first_visit(browser, tmp_path) as person:
        person.open(person.key).see("Ask a model")
        for value in ("sk-wrong-0123456789", KEY):
            person.click("Settings", role="button")
            person.see("Keys and secrets")
            assert person.axe() == []
            person.type_into("Key of anthropic", value)
            person.press("Enter")
            person.until("document.querySelector('dialog .badge.good') !== null")
            person.until(
                "[...document.querySelectorAll('dialog input[type=password]')].every((one) => one.value === '')"
            )
            assert value in (person.home / "secrets.yaml").read_text()
            assert value not in person.value("document.documentElement.outerHTML")
            person.press("Escape")
        assert "sk-wrong" not in (person.home / "secrets.yaml").read_text()


OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "paths": {
        f"/{name}": {"get": {"operationId": name, "responses": {"200": {"description": "."}}}}
        for name in ("apples", "pears", "plums")
    },
}


def test_operations_are_ticked_and_a_bundle_is_made_in_the_form(browser, tmp_path):
    with first_visit(browser, tmp_path) as person:
        person.open(person.key).see("Create a tool")
        person.open("#/build?import=1")
        person.type_into("Or paste", json.dumps(OPENAPI))
        person.see("apples", "pears", "plums")
        person.click("pears", role="checkbox")
        person.click("plums", role="checkbox")
        person.until("document.querySelectorAll('main td input:checked').length === 1")
        person.click("Import this", role="button")
        person.see("shop.apples", "Try it", "It needs: host api.example.com")

        person.open("#/build?new=http")
        person.type_into("URL", "https://api.example.com/${kind}")
        person.click("Make it an argument", role="button")
        person.see_no("Make it an argument").see("api.example.com is not in allowedHosts")
        person.click("Allow api.example.com", role="button")
        person.see_no("is not in allowedHosts")
        person.click("Auth")
        person.choose("Type of auth", "API key")
        person.until("document.querySelector('[data-at$=\"auth/name\"]').value === 'X-Api-Key'")
        person.choose("Type of auth", "Bearer token")
        person.type_into("Token", SECRET)
        person.see("This value is stored in the tool")
        assert person.axe() == []
        person.type_into("Name of the secret", "WEATHER_TOKEN")
        person.click("Keep it as a secret", role="button")
        person.until("document.querySelector('[data-at$=\"auth/value\"]').value === '${WEATHER_TOKEN}'")
        person.press("Control+s")
        person.choose("Bundle", "New bundle…")
        person.type_into("New bundle", "weather")
        person.type_into("Name", "now")
        person.click("Save", role="button", nth=-1)
        person.see("Saved: now 1")
        assert SECRET in (person.home / "secrets.yaml").read_text()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_cards_are_for_everybody(browser, tmp_path, language, scheme):
    with first_visit(browser, tmp_path) as person:
        look(person, language, scheme, 1280)
        start(person)
        assert loaded(person) == first_screen(language)
        assert person.axe() == []
        assert person.overflow() == []
        person.page.click("main section.card .primary")
        person.until("document.querySelector('main section.card input[type=checkbox]') !== null")
        assert person.axe() == []
        person.page.look(375, 800, scheme)
        assert person.overflow() == []
