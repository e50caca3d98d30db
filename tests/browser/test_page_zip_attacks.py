"""Hostile ZIP archives that a person chooses or drops: the page says why they are refused, and nothing is kept."""

import pytest
from browser.person import Person
from browser.test_page_hostile import HIDING, HOSTILE, SHOWN, nothing_ran
from interfaces.test_zip_attacks import ATTEMPTS, GOOD, OTHER_ID, bundle, changed, named
from msgspec.structs import replace
from sources.bundles.test_archive import BUNDLE, tool

from onetool.sources.bundles.archive import pack

pytestmark = [pytest.mark.attack("ZIP imports"), pytest.mark.filterwarnings("ignore:Duplicate name")]

IMAGE = "<img src=x onerror=hit=1>"


def valid(text: str = "Weather") -> bytes:
    """An archive that can be imported: the server has a bundle with the id of the usual one."""
    made = replace(BUNDLE, id=OTHER_ID, display_name=text, description=text)
    return pack(made, [replace(tool(description=text, display_name=text), bundle_id=OTHER_ID)])


CHOSEN = {
    name: ATTEMPTS[name]
    for name in (
        *("up", "up from tools", "absolute", "backslash", "drive", "null", "no UTF-8"),
        *("turned around", "zero width", "escape", "very long", "another Unicode path"),
        *("same name", "other case", "NFC and NFD", "ligature", "tool under two names", "id twice"),
        *("link", "link as bundle", "pipe", "device", "folder with content"),
        *("encrypted", "AES", "lzma", "bomb", "overlapping", "says smaller", "64-bit sizes"),
        *("data behind", "two archives", "other name at the entry", "end alone", "half", "nested"),
        *("built in", "slug that turns around", "slug with a path", "deep", "remote schema"),
    )
} | {
    "markup in a name": lambda: named(f"tools/{IMAGE}.json"),
    "markup instead of a folder": lambda: named(f"{IMAGE}.json"),
    "markup in a slug": lambda: bundle(slug=IMAGE),
    "markup in a key": lambda: changed(**{IMAGE: 1}),
    "a page behind the archive": lambda: GOOD + b"<!doctype html><script>hit=1</script>",
    "a page that begins as an archive": lambda: b"PK<!doctype html><script>hit=1</script>",
}


@pytest.fixture(scope="module")
def importing(browser, served):
    """A person on the page of imports, for all attempts."""
    with browser.page(width=1280, height=800) as page:
        one = Person(page, served.url)
        one.open("#/build?import=1").see("Or paste")
        yield one


def kept(served) -> list[str]:
    bundles = served.api.get("/tools/bundles?includeDisabled=true&pageSize=200").json()["bundles"]
    return [one["slug"] for one in bundles if not one["isBuiltIn"]]


def is_refused(person, served, before) -> None:
    """The page says why, offers no import, and nothing of it is there."""
    person.until("document.querySelector('[role=alert]') !== null")
    why = person.value("document.querySelector('[role=alert]').innerText")
    assert 10 < len(why) < 5_000
    assert not why.startswith("forecast@1: the version exists")  # the server has a bundle with this id, too
    person.see_no("Import this")
    assert person.value(HIDING) == []
    assert "\x1b" not in person.text()
    nothing_ran(person)
    assert kept(served) == before


@pytest.mark.parametrize("name", CHOSEN)
def test_an_archive_that_is_chosen(importing, served, tmp_path, name):
    before, file = kept(served), tmp_path / "weather.zip"
    file.write_bytes(CHOSEN[name]())
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    importing.attach("input[type=file]", file)
    importing.see("A bundle archive", "weather.zip")
    is_refused(importing, served, before)


@pytest.mark.parametrize("place", ["#/build?import=1", "#/tools", "#/stats"])
@pytest.mark.parametrize("name", ["up", "link", "bomb", "encrypted", "other case", "markup in a name"])
def test_an_archive_that_is_dropped(importing, served, tmp_path, name, place):
    before, file = kept(served), tmp_path / "dropped.zip"
    file.write_bytes(CHOSEN[name]())
    importing.open("#/health").open(place)
    importing.drop("Settings", file)
    importing.see("A bundle archive", "dropped.zip")
    is_refused(importing, served, before)


NAMES = [HOSTILE.replace("/", ""), "..\\..\\x", "x" * 200, "con", "a\nb", "%2e%2e%2f", "\u202egpj.zip", "'\"`${hit=1}"]


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_with_a_hostile_file_name(importing, served, tmp_path, name):
    """The name is shown as it is, and goes nowhere: the server gets the content alone."""
    before, file = kept(served), tmp_path / f"{name}.zip"
    file.write_bytes(ATTEMPTS["up"]())
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    importing.attach("input[type=file]", file)
    importing.see("A bundle archive")
    is_refused(importing, served, before)
    [*_, asked] = [
        one["request"]
        for one in importing.page.told("Network.requestWillBeSent")
        if "/tools/imports/zip" in one["request"]["url"]
    ]
    assert asked["url"] == f"{served.url}tools/imports/zip?dryRun=true"


def test_what_is_no_archive_but_is_called_so_is_not_sent(importing, served, tmp_path):
    file = tmp_path / "weather.zip"
    file.write_bytes(b"<!doctype html><script>hit=1</script>")
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    before = len(importing.page.told("Network.requestWillBeSent"))
    importing.attach("input[type=file]", file)
    importing.see("Expected a ZIP archive")
    asked = importing.page.told("Network.requestWillBeSent")[before:]
    assert not [one for one in asked if "/imports/" in one["request"]["url"]]
    nothing_ran(importing)


def test_two_archives_at_once_import_none_of_the_second(importing, served, tmp_path):
    files = [tmp_path / "first.zip", tmp_path / "second.zip"]
    files[0].write_bytes(ATTEMPTS["up"]())
    files[1].write_bytes(valid())
    before = kept(served)
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    importing.drop("Or paste", *files)
    importing.see("first.zip")
    is_refused(importing, served, before)


def test_a_refused_archive_takes_back_the_preview_of_a_good_one(importing, served, tmp_path):
    """What was previewed is never what another archive imports."""
    file = tmp_path / "first.zip"
    file.write_bytes(valid())
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    importing.attach("input[type=file]", file)
    importing.see("What would be imported", "Import this")
    before, hostile = kept(served), tmp_path / "second.zip"
    hostile.write_bytes(CHOSEN["link"]())
    importing.attach("input[type=file]", hostile)
    is_refused(importing, served, before)


def test_hostile_texts_of_a_valid_archive_are_texts(importing, served, tmp_path):
    file = tmp_path / "weather.zip"
    file.write_bytes(valid(HOSTILE))
    importing.open("#/tools").open("#/build?import=1").see("Or paste")
    importing.attach("input[type=file]", file)
    importing.see("What would be imported", "weather")
    nothing_ran(importing)
    importing.click("Import this")
    importing.see("Imported: 1 item", SHOWN)
    nothing_ran(importing)
    importing.open("#/tools").see("weather")
    nothing_ran(importing)
