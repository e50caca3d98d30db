"""What makes the page easy to read and to mend, in a real browser: names, spans, suggestions, other languages."""

import json

from browser.harness import METEO
from helpers import until

LONG = "a-name-that-goes-on-and-on-and-is-much-longer-than-any-list-is"


def test_a_long_name_ends_in_an_ellipsis_before_the_switch(person, served):
    served.put_tool(METEO, LONG, {"type": "script", "description": "x", "scriptImpl": {"code": "1"}})
    name = "meteo." + LONG.replace("-", "_")
    until(lambda: name in served.tools())
    person.open("#/tools?q=goes").see(name)
    ends = """(() => {
      const row = document.querySelector('[data-row]').parentElement;
      const [name, flip] = [row.querySelector('.name'), row.querySelector('[role=switch]')];
      const cut = name.scrollWidth > name.clientWidth && getComputedStyle(name).textOverflow === 'ellipsis';
      return cut && name.getBoundingClientRect().right <= flip.getBoundingClientRect().left;
    })()"""
    person.until(ends)


def test_an_address_names_the_tool_and_old_addresses_work(person, served):
    person.open("#/tools").see("meteo.forecast")
    person.click("meteo.forecast", role="link")
    person.until("location.hash === '#/tools?tool=meteo.forecast'")
    person.reload()
    person.until("document.querySelector('article h1')?.textContent === 'meteo.forecast'")
    person.open("#/tools?tool=nothing.here").see("This tool can't be shown")
    person.open(f"#/tools?tool={METEO}/forecast/1")
    person.until("document.querySelector('article h1')?.textContent === 'meteo.forecast'")
    person.forgive("404", "400")


def test_a_result_has_quotes_and_says_what_the_api_answered(person, served):
    person.open("#/tools?tool=meteo.forecast").see("city")
    person.type_into("city", "Rome")
    person.press("Control+Enter")
    person.see('"clear"', "API: 200 in")


def test_a_suggested_name_is_clicked(person, served):
    person.open("#/play").see("Run")
    person.value(f"localStorage.setItem('onetool.play', {json.dumps(json.dumps('numbers.add(aa=1, bb=2)'))})")
    person.open("#/tools")
    person.open("#/play")
    person.reload()
    person.click("Use a instead", role="button")
    person.until("document.querySelector('.cm-content').innerText.includes('numbers.add(a=1')")


def test_the_span_fits_the_data_and_the_axis_has_numbers(person, served):
    assert served.api.post(served.path_of("numbers.add") + "/invoke", json={"args": {"a": 1}}).json()["ok"]
    until(lambda: served.api.get("/stats").json()["calls"])
    person.open("#/stats").see("Most called")
    assert person.reads("Time span") == "1"
    person.until("[...document.querySelectorAll('.axis')].every((one) => one.lastElementChild.textContent.startsWith('0'))")


def test_findings_and_failures_are_told_in_chinese(person, served):
    person.open("#/tools")
    person.value("localStorage.setItem('onetool.language', '\"zh-CN\"')")
    person.open("#/tools?tool=numbers.fail")
    person.reload()
    person.see("reason")
    person.press("Control+Enter")
    person.see("工具执行失败", "it is a test")
