"""Stored results in a real browser: found, read page by page, and deleted with a way back."""

from base64 import b64decode

import pytest
from browser.harness import METEO, harness
from browser.person import Person
from helpers import until
from upstream import Reply

CODE = "[{'name': f'row {n} <b>x</b>', 'square': n * n} for n in range(5000)]"


def test_a_large_result_is_read_and_deleted(person, served):
    person.open("#/results").see("No result is stored")
    assert served.api.post("/run", json={"code": CODE}).json()["stored"]
    person.reload()
    person.click("row 0", role="link")
    person.see("row 0 <b>x</b>", "1 to 100 of 5,000", "square", "9801")
    person.click("Text", role="tab")
    person.see("- {name:", "row 99 <b>x</b>")
    person.click("Next →", role="button")
    person.see("101 to 200")
    person.type_into("Find lines (a regular expression)", "row 4999")
    person.see("row 4999 <b>x</b>").see_no("row 101 <b>x</b>")
    assert person.value("document.querySelector('main b') === null")
    person.click("Delete", role="button")
    person.see("Result deleted", "No result is stored")
    person.click("Undo", role="button")
    person.click("row 0", role="link")
    person.click("Delete", role="button")
    person.see("No result is stored")
    person.reload()  # who leaves the page means it
    until(lambda: served.api.get("/results").json()["results"] == [])


def test_results_outlive_the_server_and_one_that_is_gone_says_so(browser, tmp_path):
    with harness(tmp_path) as served, browser.page(width=1280, height=800) as page:
        handle = served.api.post("/run", json={"code": CODE}).json()["stored"]
        served.vanish()
        served.come_back()
        person = Person(page, served.url)
        person.open("#/results")
        person.click("row 0", role="link")
        person.see("1 to 100 of 5,000")
        assert handle in person.place
        person.forgive("status of 404")
        assert served.api.delete(f"/results/{handle}").status_code == 204
        person.reload()
        person.see("This result is gone", "No result is stored").see_no("Delete")
        assert person.axe() == []
        assert person.faults() == []


PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==")
SAVED = """
const made = URL.createObjectURL;
URL.createObjectURL = (data) => made((globalThis.newest = data));
HTMLAnchorElement.prototype.click = async function () {
  globalThis.saved = [this.download, Array.from(new Uint8Array(await newest.arrayBuffer()))];
};
"""


@pytest.mark.parametrize(
    ("kind", "data", "name"),
    [("image/png", PNG, "fetch.png"), ("application/zip", b"PK\x03\x04", "fetch.zip")],
)
def test_pictures_and_files_behind_a_handle_are_shown_and_saved(browser, tmp_path, kind, data, name):
    with harness(tmp_path) as served, browser.page(width=1280, height=800) as page:
        served.upstream.say(Reply(headers={"Content-Type": kind}, body=data))
        served.put_tool(METEO, "fetch", {"type": "http", "httpImpl": {"request": {"urlTemplate": served.upstream.url}}})
        person = Person(page, served.url)
        person.open(f"#/tools?tool={METEO}/fetch/1").see("Run")
        person.value(f"{SAVED}; null")
        person.press("Control+Enter")
        person.see(kind, "Download the file")
        if kind == "image/png":
            person.until("document.querySelector('figure img')?.naturalWidth === 1")
        person.click("Download the file", role="button")
        assert person.until("globalThis.saved") == [name, list(data)]
        person.open("#/results", "document.querySelector('main li a') !== null")
        page.click("main li a")
        person.see(kind, "Download the file")
        if kind == "image/png":
            person.until("document.querySelector('figure img')?.naturalWidth === 1")
        assert person.axe() == []
        assert person.faults() == []
