"""What was called, in a real browser: over time, by tool, and while it happens."""

from helpers import until


def test_calls_are_counted_while_one_looks(person, served):
    person.open("#/tools").see("numbers.add")
    person.press("g a")
    person.see("No calls in this time", "Call a tool from anywhere")
    for city in ("Rome", "Oslo"):
        assert _invoke(served, "meteo.forecast", {"city": city})["ok"]
    assert not _invoke(served, "numbers.fail", {"reason": "<b>boom</b>"})["ok"]
    person.see("Most called", "meteo.forecast", "numbers.fail", "By source", "Live")
    until(lambda: _calls(person) == "3")
    person.see("66.7 %")
    person.click("meteo.forecast", role="link")
    person.see("Tool: meteo.forecast", "100 %")
    until(lambda: _calls(person) == "2")
    assert "tool=meteo.forecast" in person.place, "a link to what is shown can be kept"
    person.click("Remove the filter Tool meteo.forecast", role="button")
    until(lambda: _calls(person) == "3")
    person.click("rest", role="link")
    person.see("Source: rest", "meteo.forecast")
    person.click("Remove the filter Source rest", role="button")
    person.choose("Period", "Last day")
    person.until("location.hash.includes('days=1')")
    person.see("meteo.forecast")
    assert person.value("document.querySelector('main b') === null")


def test_the_calls_of_one_client_are_picked(person, served):
    _called_over_mcp(served, "Tester <b>x</b>")
    person.open("#/stats").see("By client", "Tester <b>x</b>")
    person.click("Tester <b>x</b>", role="link")
    person.see("Client: Tester <b>x</b>")
    until(lambda: _calls(person) == "1")
    person.click("Remove the filter Client Tester <b>x</b>", role="button")
    person.see("By client").see_no("Client: Tester")


LOST = """
const original = fetch;
globalThis.fetch = async (url, sent) => {
  const answer = await original(url, sent);
  if (!String(url).includes("/stats")) return answer;
  return new Response(JSON.stringify({ ...(await answer.json()), tokensSaved: -73 }), answer);
};
"""


def test_no_tokens_saved_is_no_negative_number(person, served):
    assert _invoke(served, "meteo.forecast", {"city": "Rome"})["ok"]
    person.page.ask("Page.addScriptToEvaluateOnNewDocument", source=LOST)
    person.open("#/stats").see("Tokens saved", "none yet").see_no("73")


def _called_over_mcp(served, client):
    head = {"Accept": "application/json, text/event-stream"}

    def ask(body):
        return served.api.post("/mcp", json={"jsonrpc": "2.0", **body}, headers=head)

    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
    begun = ask({"id": 1, "method": "initialize", "params": about})
    head |= {"Mcp-Session-Id": begun.headers["mcp-session-id"]} if "mcp-session-id" in begun.headers else {}
    ask({"method": "notifications/initialized"})
    code = {"name": "run", "arguments": {"code": "numbers.add(a=1)"}}
    assert ask({"id": 2, "method": "tools/call", "params": code}).json()["result"]["content"][0]["text"] == "2"
    until(lambda: served.api.get("/stats").json()["clients"])


def _invoke(served, name, args):
    return served.api.post(f"{served.path_of(name)}/invoke", json={"args": args}).json()


def _calls(person):
    """The number of all calls that are shown."""
    return person.value("document.querySelector('main dd')?.textContent")
