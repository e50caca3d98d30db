"""One browser and one server for all tests of a file, and a person who uses the page with them."""

import pytest
from browser import person as people
from browser.chromium import chromium, found
from browser.stage import stage


@pytest.fixture(scope="module")
def browser():
    """A Chromium that reaches this machine alone."""
    if found() is None:
        pytest.skip("THE PAGE IS NOT TESTED: no Chromium on this machine (`make browser`, or ONETOOL_TEST_BROWSER)")
    with chromium("127.0.0.1") as one:
        yield one


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real server with tools of every source."""
    with stage(tmp_path_factory.mktemp("served")) as one:
        yield one


@pytest.fixture
def person(browser, served):
    """Somebody who opens the page, with nothing kept from before. A fault that nobody provoked fails the test."""
    with browser.page(width=1280, height=800) as page:
        one = people.Person(page, served.url)
        yield one
        assert one.faults() == [], "the browser complained"
