"""Stored results in a real browser: found, read page by page, and deleted with a way back."""

from helpers import until

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
    person.see("The result is deleted", "No result is stored")
    person.click("Undo", role="button")
    person.click("row 0", role="link")
    person.click("Delete", role="button")
    person.see("No result is stored")
    person.reload()  # who leaves the page means it
    until(lambda: served.api.get("/results").json()["results"] == [])
