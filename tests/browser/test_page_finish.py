"""What makes the page easy to read and to mend, in a real browser: names, spans, suggestions, other languages."""

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
    person.click("Edit", role="link")
    person.until("location.hash === '#/build?tool=meteo.forecast'")
    person.reload()
    person.see("Save as version 2")
    person.open("#/tools?tool=nothing.here").see("This tool can't be shown")
    person.open(f"#/tools?tool={METEO}/forecast/1")
    person.until("document.querySelector('article h1')?.textContent === 'meteo.forecast'")
    person.forgive("the server responded with a status of 40")


def test_a_result_has_quotes_and_says_what_the_api_answered(person, served):
    person.open("#/tools?tool=meteo.forecast").see("city")
    person.type_into("city", "Rome")
    person.press("Control+Enter")
    person.see('"clear"', "API: 200 in")


def test_a_suggested_name_is_clicked(person, served):
    person.open("#/play")
    person.type_into("Python code", "numbers.table(rwos=3)")
    person.click("Use rows instead", role="button")
    person.see_no("did you mean")
    assert person.reads("Python code") == "numbers.table(rows=3)"
    person.open(f"#/build?new=script&bundle={METEO}")
    person.type_into("Code", "numbers.tabel()")
    person.click("Use numbers.table instead", role="button")
    person.see_no("did you mean")
    assert person.reads("Code") == "numbers.table()"


def test_the_span_fits_the_data_and_the_axis_has_numbers(person, served):
    assert served.api.post(served.path_of("numbers.add") + "/invoke", json={"args": {"a": 1}}).json()["ok"]
    until(lambda: served.api.get("/stats").json()["calls"])
    person.open("#/stats").see("Most called")
    assert person.reads("Period") == "1"
    person.until(
        "[...document.querySelectorAll('.axis')].every((one) => one.lastElementChild.textContent.startsWith('0'))"
    )


def test_findings_and_failures_are_told_in_chinese(person, served):
    person.open("#/tools")
    person.value("localStorage.setItem('onetool.language', '\"zh-CN\"')")
    person.open("#/tools?tool=numbers.fail")
    person.reload()
    person.click("运行", role="button")
    person.see("工具执行失败", "it is a test")


def test_a_picker_runs_the_step_and_a_recipe_is_saved_into_a_new_bundle(person, served):
    person.open("#/recipe").see("Steps")
    for tool in ("numbers.table", "tools.echo"):
        person.click("Add a step")
        person.type_into("Find anything", tool)
        person.press("Enter")
        person.see(tool)
    person.click("Pick message from a step", role="button")
    person.click("Run it first", role="button")
    person.see('"row 1"')
    header = "getComputedStyle(document.querySelector('dialog header')).position === 'sticky'"
    assert person.value(header)
    person.click('"row 1"')
    person.press("Control+s")
    person.choose("Bundle", "New bundle")
    person.type_into("New bundle", "made")
    person.type_into("Name", "unit-of-rows")
    person.press("Enter")
    until(lambda: "made.unit_of_rows" in served.tools())
