"""The page in Chromium, whose requests go to another replica each: signed in once, it works."""

import httpx
import pytest
from browser.chromium import chromium, found
from browser.person import Person

TOKEN = "a-long-token-of-a-person-who-looks"


@pytest.fixture
def person():
    if found() is None:
        pytest.skip("THE PAGE IS NOT TESTED: no Chromium on this machine (`make browser`, or ONETOOL_TEST_BROWSER)")
    with chromium("127.0.0.1") as browser, browser.page(width=1280, height=800) as page:
        yield lambda url: Person(page, f"{url}/")


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_somebody_signs_in_once_and_uses_all_replicas(replicas, balance, person, kind):
    three = replicas(3, http=f"token: {TOKEN}")
    url = balance(kind, three).url
    one = person(url)
    one.open("#/tools").sign_in(TOKEN).see("probe.pid")
    one.click("probe.pid")
    pids = set()
    for number in range(6):
        for _ in range(number):  # else every third request, and so each run, may come to the same replica
            httpx.get(f"{url}/healthz")
        one.click("Run")
        pids |= {str(replica.pid) for replica in three if one.until(_shows_a_pid(three)) == str(replica.pid)}
    one.reload()
    one.see("probe.pid")
    assert len(pids) >= 2


def _shows_a_pid(three):
    """An expression that gives the process that the page shows."""
    pids = "|".join(str(replica.pid) for replica in three)
    return rf"(__person.text().match(/\b({pids})\b/) || [''])[0]"
