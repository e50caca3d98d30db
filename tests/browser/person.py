"""Who uses the page: finds things by the names that are read out, clicks, types, and waits until something is seen.

    def test_one(person):
        person.open("#/tools")
        person.type_into("Filter tools", "weather")
        person.click("weather.today")
        person.press("Control+k")
        assert person.faults() == []    # the fixture asks that at the end, too

Nothing here sleeps for a fixed time: a step is tried until it works, or until nobody would wait any longer.
"""

import json
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
HELPERS = (HERE / "person.js").read_text(encoding="utf-8")
AXE = HERE.parents[1] / ".node-web" / "node_modules" / "axe-core" / "axe.min.js"
KNOWS_IT = "try { localStorage.setItem('onetool.tour', 'true') } catch {}"  # not where a page has no storage
WITHIN = 15.0  # seconds until a step has failed
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
KEYS = {  # the key: its code, its number and the text that it enters
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""),
    "Space": ("Space", 32, " "),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    "F8": ("F8", 119, ""),
}


class Person:
    """One tab of a browser, used by hand. `url` is where the page is served. Who is new gets the tour."""

    def __init__(self, page, url, is_new=False):
        self.page, self.url = page, url
        self._forgiven = []
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=HELPERS if is_new else HELPERS + KNOWS_IT)

    # Going somewhere

    def open(self, place="", loaded="document.querySelector('main') !== null"):
        """Go to a place of the page: `#/tools?q=x`. Waits until it has drawn something."""
        self.page.ask("Page.navigate", url=self.url + place)
        self.until(f"document.readyState === 'complete' && ({loaded})")
        return self

    def sign_in(self, token):
        """Type a token where the page asks for one, and wait until it lets one in."""
        self.type_into("Token", token)
        self.press("Enter")
        self.until("document.querySelector('nav') !== null", "sign in")
        return self

    def reload(self):
        self.page.reload()
        self.until("document.querySelector('main') !== null")

    @property
    def place(self):
        """What stands behind `#`."""
        return self.value("location.hash")

    # Looking

    def value(self, expression):
        return self.page.value(expression)

    def text(self):
        """All that can be read, also in shadow roots."""
        return self.value("__person.text()")

    def see(self, *texts, within=WITHIN):
        """Wait until all these can be read."""
        for text in texts:
            self.until(f"__person.text().includes({json.dumps(text)})", f"see {text!r}", within)
        return self

    def see_no(self, *texts, within=WITHIN):
        """Wait until none of these can be read."""
        for text in texts:
            self.until(f"!__person.text().includes({json.dumps(text)})", f"see no {text!r}", within)
        return self

    def until(self, expression, what=None, within=WITHIN):
        """Wait until an expression in the page is true, and give it."""
        deadline = time.monotonic() + within
        while True:
            with suppress(RuntimeError):  # between two pages there is nobody to answer
                if found := self.value(expression):
                    return found
            if time.monotonic() > deadline:
                raise AssertionError(f"A person can't {what or 'see that ' + expression}.\n{self._told()}")
            time.sleep(0.02)

    def names(self, role):
        """The names of all things of a role that are shown: `names("listitem")`."""
        return self.value(f"__person.names({json.dumps(role)})")

    def focused(self):
        """Role and name of what has the focus."""
        return tuple(self.value("__person.focused()"))

    def reads(self, label):
        """What stands in a field."""
        return self._of("field", label, "one.value ?? one.innerText")

    def attribute(self, name, attribute, role=None):
        """An attribute of a thing by its name: `attribute("Switch time.now on or off", "aria-checked")`."""
        return self._of("thing", name, f"one.getAttribute({json.dumps(attribute)})", role)

    # Doing

    def click(self, name, role=None, nth=0):
        """Click on something by its accessible name or its text; in an open dialog, if there is one."""
        self._click("thing", name, role, nth)

    def type_into(self, label, text, nth=0):
        """Replace what stands in a field."""
        self._click("field", label, None, nth)
        self.value("__person.clear()")
        self.press("Delete")
        if text:
            self.page.ask("Input.insertText", text=text)

    def choose(self, label, option):
        """Choose in a list by the text of an option, or by its beginning."""
        called = f"__person.choose({json.dumps(label)}, {json.dumps(option)})"
        self.until(called, f"choose {option!r} in {label!r}")

    def press(self, keys):
        """Press keys, one after the other: `Control+k`, `g t`, `ArrowDown Enter`."""
        for combination in keys.split():
            *held, key = combination.split("+") if combination != "+" else ["+"]
            code, number, text = KEYS.get(key) or (_code(key), ord(key.upper()), key)
            modifiers = sum(MODIFIERS[one] for one in held)
            facts = {"key": " " if key == "Space" else key, "code": code, "windowsVirtualKeyCode": number}
            shown = {"text": text} if text and not modifiers & ~MODIFIERS["Shift"] else {}
            kind = "keyDown" if shown else "rawKeyDown"
            self.page.ask("Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **facts, **shown)
            self.page.ask("Input.dispatchKeyEvent", type="keyUp", modifiers=modifiers, **facts)

    def write(self, text):
        """Type where the focus is."""
        self.page.ask("Input.insertText", text=text)

    def paste(self, *files):
        """Paste files where the focus is: (name, type, bytes) each. The clipboard of a headless browser has none."""
        made = [[name, kind, list(data)] for name, kind, data in files]
        self.value(f"__person.paste({json.dumps(made)})")

    def paste_text(self, text):
        """Put a text into the clipboard, and paste it by the keys for that."""
        self.page.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.value(f"navigator.clipboard.writeText({json.dumps(text)})")
        facts = {"key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": MODIFIERS["Control"]}
        self.page.ask("Input.dispatchKeyEvent", type="rawKeyDown", commands=["paste"], **facts)
        self.page.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    def ask(self, question):
        """Ask the model of Chat."""
        self.type_into("Your question", question)
        self.press("Enter")

    def drop(self, name, *files):
        """Drag files from outside over something, and drop them there."""
        spot = self._find("thing", name, None, 0)
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.page.ask("Input.dispatchDragEvent", type=kind, **spot, data=data)

    def attach(self, selector, *files):
        """Give files to an `input type=file`, as its picker would: that is the browser's own window."""
        self.until(f"document.querySelector({json.dumps(selector)}) !== null", f"give files to {selector}")
        root = self.page.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.page.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.page.ask("DOM.setFileInputFiles", files=[str(file) for file in files], nodeId=node)

    # Judging

    def picture(self, file=None, full=False):
        """The window as PNG, also into a file."""
        data = self.page.picture(full=full)
        if file:
            Path(file).write_bytes(data)
        return data

    def axe(self):
        """What axe-core finds wrong for people who can't see or can't use a mouse: texts. None where it is missing."""
        if not AXE.exists():
            warnings.warn("ACCESSIBILITY IS NOT TESTED: npm could not install axe-core", stacklevel=2)
            return []
        self.value("void document.getAnimations().forEach((one) => { try { one.finish() } catch {} })")
        self.value(f"globalThis.axe ? 0 : void {axe_source()}")
        run = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)"
        found = self.value(run)
        return [
            f"{one['id']}: {one['help']}: {node['html'][:160]} ({' '.join((node.get('failureSummary') or '').split())})"
            for one in found
            for node in one["nodes"]
        ]

    def overflow(self):
        """Return what sticks out at the side of the window, or can only be reached by scrolling sideways."""
        wide = self.value("document.documentElement.scrollWidth > innerWidth")
        found = self.value("[...__person.overflow(), ...__person.sideways()]")
        return found + (["the page scrolls sideways"] if wide else [])

    def forgive(self, text):
        """This fault is meant: the test provokes it."""
        self._forgiven.append(text)

    def faults(self):
        """What the browser complained of: exceptions, errors of the console and the policy, requests that failed."""
        told = [
            *(_exception(one) for one in self.page.told("Runtime.exceptionThrown")),
            *(_logged(one) for one in self.page.told("Log.entryAdded")),
            *(_console(one) for one in self.page.told("Runtime.consoleAPICalled")),
            *(one["errorText"] for one in self.page.told("Network.loadingFailed") if not one.get("canceled")),
        ]
        return [one for one in told if one and not any(text in one for text in self._forgiven)]

    # Inside

    def _find(self, kind, name, role, nth):
        """Where a thing is, once it stands still and nothing covers it."""
        deadline, before = time.monotonic() + WITHIN, None
        asked = f"__person.target({json.dumps(kind)}, {json.dumps(name)}, {json.dumps(role)}, {nth})"
        while True:
            now = None
            with suppress(RuntimeError):
                now = self.value(asked)
            if now and "x" in now and now == before:
                return now
            if time.monotonic() > deadline:
                why = f"{now['blocked']} is in the way" if now and "blocked" in now else "it does not exist"
                raise AssertionError(f"A person can't reach the {kind} {role or ''} {name!r}: {why}.\n{self._told()}")
            before = now
            time.sleep(0.01)

    def _click(self, kind, name, role, nth):
        """Press and release. A press that misses, because the page has moved, is taken back: nothing is clicked."""
        for _ in range(20):
            spot = self._find(kind, name, role, nth)
            self._mouse("mouseMoved", spot)
            self._mouse("mousePressed", spot)
            has_hit = self._hit()
            self._mouse("mouseReleased", spot if has_hit else {"x": 0, "y": 0})
            if has_hit and self._hit():
                return
        raise AssertionError(f"A person can't click {name!r}: it does not stand still.\n{self._told()}")

    def _mouse(self, kind, spot):
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.page.ask("Input.dispatchMouseEvent", type=kind, **spot, **button)

    def _hit(self):
        with suppress(RuntimeError):
            return self.value("__person.hit()")
        return True  # the click has led to another page

    def _of(self, kind, name, expression, role=None):
        found = f"__person.where({json.dumps(kind)}, {json.dumps(name)}, {json.dumps(role)}, 0)"
        answer = f"((one) => one && [{expression}])({found})"
        return self.until(answer, f"find the {kind} {name!r}")[0]

    def _told(self):
        with suppress(RuntimeError):
            return (
                f"At {self.place!r} the page reads at its end:\n{self.text()[-1500:]}\n"
                f"Within reach: {', '.join(self.value('__person.reachable()'))}\nFaults: {self.faults()}"
            )
        return "The page does not answer."


@cache
def axe_source():
    return AXE.read_text(encoding="utf-8")


def _code(key):
    return f"Key{key.upper()}" if key.isalpha() else f"Digit{key}" if key.isdigit() else ""


def _exception(told):
    details = told["exceptionDetails"]
    return details.get("exception", {}).get("description") or details["text"]


def _logged(told):
    entry = told["entry"]
    return f"{entry['text']} {entry.get('url', '')}" if entry["level"] in ("error", "warning") else ""


def _console(told):
    if told["type"] not in ("error", "warning", "assert"):
        return ""
    return f"console.{told['type']}: " + " ".join(str(one.get("value", one.get("description"))) for one in told["args"])
