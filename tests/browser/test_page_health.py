"""What is wrong, in a real browser: said with its place and what mends it. And the tour of who is new."""

import pytest
from browser.person import Person


def test_nothing_is_wrong_until_something_is(person, served):
    person.open("#/health").see("Trust of this folder", "OneTool ")
    person.see("Nothing is wrong")
    (served.server.folder / "packs" / "broken.py").write_text("def one(:\n")
    served.api.post("/call/ot.reload")
    person.click("Check again", role="button")
    person.see("Error", "broken.py", "1 thing to look at")


@pytest.fixture
def newcomer(browser, served):
    with browser.page(width=375, height=700) as page:
        one = Person(page, served.url, is_new=True)
        yield one
        assert one.faults() == []


def test_the_tour_is_shown_once(newcomer):
    """On a phone, where the bar scrolls to what is pointed at."""
    newcomer.open("#/tools").see("Every tool in one list", "1 / 5")
    for n in range(2, 6):
        newcomer.click("Next", role="button")
        newcomer.see(f"{n} / 5")
    pointed = "document.querySelector('.pointed').getBoundingClientRect()"
    newcomer.until(f"{pointed}.left >= 0 && {pointed}.right <= innerWidth")
    newcomer.page.click("[data-row]")
    newcomer.until("location.hash.includes('tool=')")  # the page can be used meanwhile
    newcomer.press("Escape")
    newcomer.see_no("5 / 5")
    assert "tool=" in newcomer.place, "Escape ends the tour, not what is behind it"
    newcomer.press("Escape")
    newcomer.until("!location.hash.includes('tool=')")
    newcomer.reload()
    newcomer.see("numbers.add").see_no("1 / 5")
    newcomer.click("Settings", role="button")
    newcomer.click("Show the tour", role="button")
    newcomer.see("1 / 5")
