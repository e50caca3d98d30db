"""A real browser for tests: Chromium without a window, told what to do through a pipe (the DevTools protocol).

No package brings one for every machine: what is installed is used, or what ONETOOL_TEST_BROWSER names. Where there is
none, tests that need one are skipped and say so.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

WITHIN = 60.0  # seconds for any answer
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
    "--enable-blink-features=ComputedAccessibilityInfo",  # the names and roles that screen readers get
)


class BrowserError(Exception):
    """The browser has ended, or does not answer."""


def found():
    """The browser's program, or None."""
    named = os.environ.get("ONETOOL_TEST_BROWSER")
    return next(filter(None, map(shutil.which, (named,) if named else NAMES)), None)


@contextmanager
def chromium(*reachable):
    """A browser of our own, with a profile of its own; ended with all its processes. It reaches these hosts alone."""
    program = found()
    if program is None:
        raise BrowserError("no browser was found")
    with tempfile.TemporaryDirectory(prefix="onetool-browser-", ignore_cleanup_errors=True) as folder:
        # As root, as in a container, Chromium's own sandbox does not work.
        hosts = ", ".join(["MAP * ~NOTFOUND", *(f"EXCLUDE {host}" for host in reachable)])
        own = [f"--user-data-dir={folder}/profile", f"--host-resolver-rules={hosts}"]
        flags = [*FLAGS, *own, *(["--no-sandbox"] if os.getuid() == 0 else [])]
        pid, reader, writer = _start([program, *flags], {**os.environ, "HOME": folder}, f"{folder}/said")
        browser = Browser(reader, writer, Path(folder, "said"))
        try:
            browser.ask("Browser.getVersion")
            yield browser
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # a group of its own: the browser is many processes
            os.waitpid(pid, 0)
            os.close(reader)
            os.close(writer)


def _start(command, environment, said):
    """The browser reads at 3 and writes at 4; our ends are numbered far from both."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    low = (theirs_in, ours_out, ours_in, theirs_out)
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in low]
    for end in low:
        os.close(end)
    theirs_in, ours_out, ours_in, theirs_out = high
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_DUP2, theirs_in, 3),
        (os.POSIX_SPAWN_DUP2, theirs_out, 4),
    ]
    pid = os.posix_spawn(command[0], command, environment, file_actions=actions, setpgroup=0)
    os.close(theirs_in)
    os.close(theirs_out)
    return pid, ours_in, ours_out


class Browser:
    """Questions and answers, one at a time; what the browser tells by itself is kept in `events`."""

    def __init__(self, reader, writer, said):
        self._reader, self._writer, self._said = reader, writer, said
        self._number, self._buffer = 0, b""
        self.events = []

    def ask(self, method, session=None, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writer, data) :]
        deadline = time.monotonic() + WITHIN
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def wait_for(self, method, session):
        """The next thing of this kind that is told, or has been."""
        deadline = time.monotonic() + WITHIN
        while True:
            for event in self.events:
                if event["method"] == method and event.get("sessionId") == session:
                    return event["params"]
            self._next(deadline)

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            if not select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserError("the browser does not answer")
            chunk = os.read(self._reader, 1 << 20)
            if not chunk:
                raise BrowserError(f"the browser has ended: {self._said.read_text(errors='replace')[-500:]}")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    @contextmanager
    def page(self, file=None, width=1200, height=900, scheme="light"):
        """A file or an address, opened in a tab of its own; or nothing yet."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.ask(f"{domain}.enable")
            page.look(width, height, scheme)
            if file is not None:
                page.open(file if "://" in str(file) else Path(file).as_uri())
            yield page
        finally:
            self.ask("Target.disposeBrowserContext", browserContextId=context)
            self.events[:] = [one for one in self.events if one.get("sessionId") != session]


class Page:
    """One tab."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session

    def ask(self, method, **params):
        return self._browser.ask(method, self._session, **params)

    def open(self, url):
        self.ask("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def reload(self):
        """Load it again, and wait until that is done: the event of the first time does not count."""
        events = self._browser.events
        events[:] = [event for event in events if event["method"] != "Page.loadEventFired"]
        self.ask("Page.reload")
        self._browser.wait_for("Page.loadEventFired", self._session)

    def title_at(self, url):
        """The page's title, once it has come to this address."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            with suppress(RuntimeError):  # between two pages there is nobody to answer
                state = self.value("[location.href, document.readyState, document.title]")
                if state[:2] == [url, "complete"]:
                    return state[2]
            time.sleep(0.02)
        raise BrowserError(f"the page does not come to {url}")

    def look(self, width, height, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression):
        """What an expression in the page comes to, as data."""
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description"))
        return done["result"].get("value")

    def click(self, selector):
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point_at(self, selector):
        x, y = self._middle(selector)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _middle(self, selector):
        return self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x + b.width / 2, b.y + b.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )

    def picture(self, full=True):
        """The page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        options = {"captureBeyondViewport": True, "clip": clip} if full else {}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", **options)["data"])

    def told(self, *methods):
        """What was told of this page: errors, requests, …"""
        self.value("0")  # what came before this is here now
        return [
            event["params"]
            for event in self._browser.events
            if event["method"] in methods and event.get("sessionId") == self._session
        ]
