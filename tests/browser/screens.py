"""Every screen of the page, and how one gets there without reading a word: in any language."""

from browser.stage import METEO

FORECAST = f"{METEO}/forecast/1"
REPORT = f"{METEO}/report/1"


def _open(place, *then):
    """Go there; then press these keys, or wait for these expressions."""

    def go(person):
        person.open(place, READY)
        for step in then:
            if step.startswith("press "):
                person.press(step.removeprefix("press "))
            elif step.startswith("click "):
                selector = step.removeprefix("click ")
                person.until(f"document.querySelector({selector!r}) !== null")
                person.page.click(selector)
            else:
                person.until(step)

    return go


READY = "document.querySelector('main h1, main h2, main form') && !document.querySelector('[aria-busy=true]')"
TABPANEL = "document.querySelector('[role=tabpanel]')?.innerText.length > 0"
DIALOG = "document.querySelector('dialog:modal') !== null"

# By name: how to get there. The sign-in is a matter of another server: see `SIGN_IN`.
SCREENS = {
    "tools": _open("#/tools", "document.querySelectorAll('[data-row]').length > 5"),
    "filtered": _open("#/tools?q=weather&state=on", "document.querySelectorAll('[data-row]').length > 0"),
    "nothing": _open("#/tools?q=nothing-of-the-kind"),
    "try": _open(f"#/tools?tool={FORECAST}&tab=try", TABPANEL),
    "about": _open(f"#/tools?tool={FORECAST}&tab=about", TABPANEL),
    "usage": _open(f"#/tools?tool={FORECAST}&tab=usage", TABPANEL, "document.querySelector('svg') !== null"),
    "versions": _open(f"#/tools?tool={FORECAST}&tab=versions", TABPANEL),
    "gone": _open("#/tools?tool=00000000-0000-7000-8000-000000000000/gone/1"),
    "palette": _open("#/tools", "document.querySelectorAll('[data-row]').length > 5", "press Control+k", DIALOG),
    "keys": _open("#/tools", "document.querySelectorAll('[data-row]').length > 5", "press ?", DIALOG),
    "settings": _open("#/tools", "click nav .bottom button", DIALOG),
    "build": _open("#/build"),
    "build-http": _open(f"#/build?tool={FORECAST}", "document.querySelector('main').innerText.includes('/v1/city')"),
    "build-script": _open(f"#/build?tool={REPORT}", "document.querySelectorAll('main input').length > 1"),
    "build-new": _open(f"#/build?new=http&bundle={METEO}", "document.querySelectorAll('main input').length > 3"),
    "build-bundle": _open(f"#/build?bundle={METEO}", "document.querySelectorAll('main input').length > 1"),
    "import": _open("#/build?import=1"),
    "servers": _open("#/servers"),
    "results": _open("#/results"),
    "stats": _open("#/stats", "document.querySelectorAll('main svg').length > 1"),
    "health": _open("#/health", "document.querySelectorAll('main .card').length > 1"),
}
SIGN_IN = _open("", "document.querySelector('input[type=password]') !== null")


def look(person, language, scheme, width):
    """Choose language, theme and size, for all screens that are opened after this."""
    person.page.look(width, 800, scheme)
    person.page.ask(
        "Page.addScriptToEvaluateOnNewDocument", source=f"localStorage.setItem('onetool.language', '\"{language}\"')"
    )


def some_calls(served):
    """So that the usage has something to show."""
    for city in ("Rome", "Oslo", "Lima"):
        served.api.post(f"{served.path_of('meteo.forecast')}/invoke", json={"args": {"city": city}})
