"""What was called, in a real browser: over time, by tool, and while it happens."""

from helpers import until


def test_calls_are_counted_while_one_looks(person, served):
    person.open("#/tools").see("numbers.add")
    person.press("g a")
    person.see("No calls in this time", "Call a tool from anywhere")
    for city in ("Rome", "Oslo"):
        assert _invoke(served, "meteo.forecast", {"city": city})["ok"]
    assert not _invoke(served, "numbers.fail", {"reason": "<b>boom</b>"})["ok"]
    person.see("Most called", "meteo.forecast", "numbers.fail", "By source", "Just now")
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
    person.choose("Time span", "Last day")
    person.until("location.hash.includes('days=1')")
    person.see("meteo.forecast")
    assert person.value("document.querySelector('main b') === null")


def _invoke(served, name, args):
    return served.api.post(f"{served.path_of(name)}/invoke", json={"args": args}).json()


def _calls(person):
    """The number of all calls that are shown."""
    return person.value("document.querySelector('main dd')?.textContent")
