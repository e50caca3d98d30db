"""The page's assets, as they are committed: built from these sources, small, and without what its policy refuses."""

import gzip
import json
import re

import pytest
from web import build
from web.build import STATIC, WEB, mismatches, used_document

FIRST_SCREEN = 60_000  # bytes, compressed
ALL = 270 * 1024
STATIC_IMPORT = re.compile(r"""\b(?:from|import)\s*["'](\./[^"']+)["']""")


def size(*names):
    """What is sent of these assets, compressed."""
    return sum(len(gzip.compress((STATIC / name).read_bytes(), 9, mtime=0)) for name in names)


def index():
    return (STATIC / "index.html").read_text(encoding="utf-8")


def first_screen(language="en"):
    """Return everything that a first visit loads before anybody clicks: what index.html names, what that imports, and
    the texts. The first script loads the page when it has taken the key of a link out of the address.
    """
    todo, found = re.findall(r'(?:src|href)="\./([^"]+)"', index()), {"index.html"}
    [entry] = re.findall(r'<script[^>]* src="\./([^"]+)"', index())
    todo += re.findall(r'"\./([^"]+)"', (STATIC / entry).read_text(encoding="utf-8").replace('"./', '"./assets/'))
    todo += [f"assets/{path.name}" for path in STATIC.glob("assets/*.js") if re.match(rf"(.+-)?{language}-", path.name)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            if name.endswith(".js"):
                text = (STATIC / name).read_text(encoding="utf-8")
                todo += [f"assets/{path.removeprefix('./')}" for path in STATIC_IMPORT.findall(text)]
    return found


def test_assets_belong_to_the_sources():
    """Hashes are compared; `make web-check` builds the page anew."""
    assert mismatches() == [], "run `make web`, and commit what it changes"


def test_a_schema_that_changed_is_a_mismatch(monkeypatch):
    changed = json.loads(json.dumps(used_document()))
    changed["components"]["schemas"]["Tool"]["properties"]["new"] = {"type": "string"}
    monkeypatch.setattr(build, "used_document", lambda: changed)
    assert mismatches() == ["schema Tool has changed"]


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_the_first_screen_is_small(language):
    """`test_page_start` compares these files with what a browser asks for."""
    names = first_screen(language)
    assert any(name.endswith(".js") for name in names)
    assert any(name.endswith(".css") for name in names)
    assert size(*names) < FIRST_SCREEN, {name: size(name) for name in names}


def test_all_of_it_is_small():
    names = [path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()]
    assert size(*names) < ALL, {name: size(name) for name in names}


def test_index_has_nothing_inline():
    """The policy would refuse it, silently for the reader."""
    scripts = re.findall(r"<script\b([^>]*)>(.*?)</script>", index(), re.DOTALL)
    assert scripts
    assert all("src=" in given and not text.strip() for given, text in scripts)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|data:", index())
    assert not re.search(r'(?:src|href)="(?!\./)', index()), "addresses are relative: the page may stand below a path"


def test_assets_name_no_other_host():
    """Nothing is loaded from elsewhere. Addresses of documentation and of XML's names are no requests."""
    known = {"svelte.dev", "www.w3.org", "json-schema.org", "codemirror.net", "127.0.0.1", "localhost"}
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html"):
            hosts = set(re.findall(r"https?://([\w.-]+\.\w+)", path.read_text(encoding="utf-8")))
            assert {one for one in hosts if not re.search(r"(^|\.)example(\.\w+)?$", one)} <= known, path.name


def test_the_lock_names_no_place():
    """Packages are pinned by their hashes; npm asks the registry that it is set to ask."""
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert not [name for name, one in packages.items() if "resolved" in one]
    assert not [name for name, one in packages.items() if not one.get("integrity", "").startswith("sha512-")]
    assert "://" not in json.dumps({name: one for name, one in packages.items() if one.pop("funding", 1)})
