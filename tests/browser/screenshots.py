"""`make screenshots`: the pictures of docs/guide/page.md, of the same data each time.

What differs from run to run (the port, times, how long a call took) is replaced in the page before it is taken.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from browser.chromium import chromium, found
from browser.harness import harness
from browser.person import Person
from browser.screens import SCREENS, SIGN_IN, busy_stage, first_visit, look, sign_in, start
from browser.small_png import small_png

LOOKS = {"": ("light", 1200), "-dark": ("dark", 1200), "-phone": ("light", 375)}
ONE_LOOK = {"": LOOKS[""]}
EVERY_LOOK = ("tools", "try", "chat", "build-http", "play", "recipe", "servers", "results", "stats", "health")
WANTED = dict.fromkeys(EVERY_LOOK, LOOKS) | dict.fromkeys(("about", "usage", "palette", "import"), ONE_LOOK)
STEADY = r"""(() => {
  const swaps = [[/127\.0\.0\.1:\d+/g, '127.0.0.1:8765'], [/\d+(\.\d+)? m?s\b/g, '12 ms'],
    [/\/\S+\/bin\/python\S*/g, 'python'],
    [/\/\S+\/onetool\.yaml/g, '~/.onetool/onetool.yaml'],
    [/\w{3} \d{1,2}, \d{4}(, \d{1,2}:\d\d\s[AP]M)?/g, 'Nov 16, 2026']];
  const walk = (root) => {
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      if (node.nodeType === 3) node.data = swaps.reduce((text, [what, by]) => text.replace(what, by), node.data);
      else if (node.value && typeof node.value === 'string' && node.matches('input, textarea'))
        node.value = swaps.reduce((text, [what, by]) => text.replace(what, by), node.value);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
  };
  walk(document.body);
  document.activeElement?.blur?.();
})()"""


def take(browser, served, folder, name, go, looks):
    for suffix, (scheme, width) in looks.items():
        with browser.page() as page:
            person = Person(page, served.url)
            look(person, "en", scheme, width)
            if name != "sign-in":
                sign_in(person, served)
            go(person)
            if name == "try":
                _called(person)
            save(person, folder, f"{name}{suffix}")


def save(person, folder, name):
    person.value(STEADY)
    file = folder / f"page-{name}.png"
    file.write_bytes(small_png(person.picture()))
    print(f"{file.name}  {file.stat().st_size / 1024:.0f} KB", flush=True)


def _called(person):
    """A form that has been filled in, and what came of it."""
    person.type_into("city", "Rome")
    person.press("Control+Enter")
    person.see("clear")


def main() -> None:
    if found() is None:
        sys.exit("There is no Chromium on this machine: `make browser` installs one.")
    folder = Path(sys.argv[1])
    with TemporaryDirectory() as home, TemporaryDirectory() as other, chromium("127.0.0.1") as browser:
        with TemporaryDirectory() as new, first_visit(browser, Path(new)) as person:
            look(person, "en", "light", 1200)
            start(person)
            save(person, folder, "start")
        with busy_stage(Path(home)) as served:
            for name in sys.argv[2:] or WANTED:
                take(browser, served, folder, name, SCREENS[name], WANTED[name])
        with harness(Path(other), token="sesame-token-0123456789") as served:
            take(browser, served, folder, "sign-in", SIGN_IN, ONE_LOOK)


if __name__ == "__main__":
    main()
