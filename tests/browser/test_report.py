"""The report of the stats in a real browser: it asks for nothing, runs nothing, and looks right."""

import pytest
from browser.chromium import chromium, found
from browser.summaries import hostile, one_call, summary, usual

from onetool.services.journal.report import report

pytestmark = pytest.mark.skipif(found() is None, reason="no Chromium on this machine (ONETOOL_TEST_BROWSER names one)")

CASES = {
    "usual": usual(),
    "day": usual("day", 6, 24),
    "500 tools": usual("week", 500, 28),
    "90 days": usual("all", 40, 90),
    "one": one_call(),
    "nothing": summary(),
    "hostile": hostile(),
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the report of a summary."""

    def opened(case, **look):
        (tmp_path / "report.html").write_text(report(case), encoding="utf-8")
        return browser.page(tmp_path / "report.html", **look)

    return opened


def wrong(page):
    """Whatever the browser complains of, and whatever the page asked for beside itself."""
    complaints = page.told("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    asked = [one["request"]["url"] for one in page.told("Network.requestWillBeSent")]
    return complaints, [url for url in asked if not url.endswith("/report.html")]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1400, "light")])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_is_wrong_and_nothing_overflows(opened, case, width, scheme):
    with opened(case, width=width, scheme=scheme) as page:
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.value(OUTSIDE) == []
        assert wrong(page) == ([], [])


# Parts of cards that stick out of them, but for what can be scrolled.
OUTSIDE = """[...document.querySelectorAll('.card, .tiles div')].flatMap(card => {
  const edge = card.getBoundingClientRect();
  return [...card.querySelectorAll('*')].filter(e => !e.closest('.scroll, caption, title')).filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && (box.right > edge.right + 1 || box.left < edge.left - 1);
  }).map(e => e.outerHTML.slice(0, 90));
})"""


def test_names_from_anywhere_do_not_run(opened):
    with opened(hostile()) as page:
        page.point_at(".plot .ground")
        page.click("summary")
        assert page.value("document.title").startswith("OneTool stats: </script>")
        assert page.value("document.querySelectorAll('img').length") == 0
        assert page.value("document.scripts.length") == 0
        assert wrong(page) == ([], [])


def test_the_policy_holds_where_escaping_would_not(opened, browser, tmp_path):
    """A page into which markup got after all: nothing of it runs, and nothing is asked for."""
    broken = report(usual()).replace(
        "<main>",
        '<main><img src=x onerror="document.title=1"><script>document.title = 2</script><b style="color:red">x</b>',
    )
    (tmp_path / "report.html").write_text(broken, encoding="utf-8")
    with browser.page(tmp_path / "report.html") as page:
        assert page.value("document.title") == "OneTool stats"
        assert page.value("getComputedStyle(document.querySelector('b')).color") != "rgb(255, 0, 0)"
        refused = page.told("Log.entryAdded")
        assert len(refused) >= 3
        assert all("Content Security Policy" in one["entry"]["text"] for one in refused)


def test_charts_have_a_column_for_each_bucket(opened):
    case = usual(buckets=30)
    with opened(case) as page:
        heights = page.value(
            "[...document.querySelectorAll('.plot')].map(plot =>"
            " [...plot.querySelectorAll('.level1')].map(e => e.getBoundingClientRect().height))"
        )
        assert [len(chart) for chart in heights] == [30, 30, 30]
        largest = max(range(30), key=lambda at: case["series"][at]["calls"])
        assert heights[0][largest] == max(heights[0]) > 100


def test_one_bucket_is_one_slim_column_in_the_middle(opened):
    with opened(one_call(), width=1000) as page:
        left, wide, all = page.value(
            "(() => { const bar = document.querySelector('.plot .level1').getBoundingClientRect(),"
            " plot = document.querySelector('.plot').getBoundingClientRect();"
            " return [bar.left - plot.left, bar.width, plot.width]; })()"
        )
        assert wide < 80
        assert left + wide / 2 == pytest.approx(all / 2, abs=1)


def test_tables_behind_charts_open(opened):
    with opened(usual(buckets=30)) as page:
        page.click("summary")
        assert page.value("document.querySelectorAll('details[open] tbody tr').length") == 30


def test_dark_and_light_differ_and_paper_is_white(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(usual(), scheme="light") as page:
        light, light_picture = page.value(ground), page.picture()
        page.look(1200, 900, "dark")
        assert page.value(ground) != light
        assert page.picture() != light_picture
        page.ask(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        assert page.value(ground) == "rgb(255, 255, 255)"


def test_it_can_be_printed(opened):
    with opened(usual()) as page:
        assert page.ask("Page.printToPDF", printBackground=True)["data"].startswith("JVBERi0")
