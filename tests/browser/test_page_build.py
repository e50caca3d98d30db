"""Somebody builds tools on the page: a bundle, an HTTP tool, a version that somebody else has made, an import."""

import base64
import json
import zipfile
from contextlib import contextmanager
from io import BytesIO

from browser.chromium import Page
from browser.harness import METEO, harness
from browser.person import Person
from helpers import until

TOKEN = "sesame-token-0123456789"
TOOL = {"type": "script", "description": "Theirs.", "scriptImpl": {"code": "1"}}
SHOES = "01890a5d-ac96-774b-bcce-b302099a8058"
HATS = "01890a5d-ac96-774b-bcce-b302099a8059"
HTML_502 = "new Response('<html><h1>Bad Gateway</h1></html>', {status: 502, headers: {'content-type': 'text/html'}})"
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"


def bundle_of(served, slug):
    listed = served.api.get("/tools/bundles?pageSize=1000").json()["bundles"]
    return next((one["id"] for one in listed if one["slug"] == slug), None)


def tool(served, bundle, slug, version):
    found = served.api.get(f"/tools/bundles/{bundle}/tools/{slug}/version/{version}")
    return found.json() if found.status_code == 200 else None


def meet(person, javascript):
    """Something happens on the way to the server: an expression of `url`, `sent` and `real`, which is fetch itself."""
    person.value(f"void ((real) => (globalThis.fetch = (url, sent) => {javascript}))(globalThis.fetch)")


def test_a_bundle_and_an_http_tool_are_built_and_a_draft_survives_a_reload(person, served):
    person.open("#/build")
    person.see("Pick a bundle or tool to edit")
    assert person.value("Array.from(document.querySelectorAll('h1'), (one) => one.textContent)") == ["Build"]
    person.click("New bundle")
    person.type_into("Name", "shop")
    person.press("Control+s")
    person.see("Saved: shop", "This bundle has no tools yet")
    bundle = bundle_of(served, "shop")
    assert person.place == "#/build?bundle=shop"
    person.open(f"#/build?bundle={bundle}").see("This bundle has no tools yet")  # addresses with ids still work

    person.type_into("Name", "store")
    person.press("Control+s")
    until(lambda: person.place == "#/build?bundle=store")
    person.type_into("Name", "shop")
    person.type_into("Display name", "The shop")
    person.press("Control+s")
    until(lambda: served.api.get(f"/tools/bundles/{bundle}").json()["displayName"] == "The shop")
    assert served.api.get(f"/tools/bundles/{bundle}").json()["slug"] == "shop"
    person.see_no("Unsaved draft")

    person.click("New HTTP tool", nth=1)
    person.click("Add an argument")
    person.type_into("Name of argument 1", "item")
    person.type_into("URL", "ftp://example.com")
    person.see("has to start with http:// or https://")
    until(lambda: person.attribute("URL", "aria-invalid", role="textbox") == "true")
    person.type_into("URL", f"{served.upstream.url}/v1/${{item}}")
    person.see_no("has to start with http:// or https://")
    person.click("Parameter")
    person.type_into("Query: name 1", "days")
    person.type_into("Value of days", "${days}")
    person.see("Unsaved draft")

    person.reload()
    person.see("Unsaved draft")
    person.type_into("Value of days", "3")
    person.see(f"GET {served.upstream.url}/v1/item?days=3")
    person.press("Control+s")
    person.type_into("Name", "price")
    person.type_into("Description", HOSTILE)
    person.click("Save", role="button", nth=-1)
    person.see("Saved: price 1", "shop.price")
    kept = tool(served, bundle, "price", "1")
    assert kept["argSchema"]["properties"] == {"item": {"type": "string"}}
    assert kept["httpImpl"]["request"]["query"] == {"days": "3"}
    assert kept["description"] == HOSTILE
    person.click("shop", role="link")
    person.see("<img src=x onerror=alert(1)>⟨U+202E⟩gpj")


def test_who_was_faster_is_shown_beside_and_a_deleted_tool_comes_back(person, served):
    served.put_tool(METEO, "note", TOOL)
    person.open(f"#/build?tool={METEO}/note/1")
    person.type_into("Description", "Mine.")
    person.see("Save as version 2")
    served.put_tool(METEO, "note", {**TOOL, "description": "Of somebody else."}, version="2")
    person.forgive("409")
    person.press("Control+s")
    person.see("Version 2 was created elsewhere", "Of somebody else.", "differs")
    person.click("Keep mine")
    person.see("Saved: note 3")
    assert tool(served, METEO, "note", "2")["description"] == "Of somebody else."
    assert tool(served, METEO, "note", "3")["description"] == "Mine."

    person.click("Delete")
    person.see("Deleted: note 3")
    assert tool(served, METEO, "note", "3") is None
    person.click("Undo")
    until(lambda: tool(served, METEO, "note", "3"))
    assert tool(served, METEO, "note", "3")["description"] == "Mine."


def test_the_focus_stays_where_one_works_when_something_is_deleted(person, served):
    served.put_tool(METEO, "brief", TOOL)
    person.open(f"#/build?tool={METEO}/brief/1")
    person.click("Add an argument")
    person.see("Unsaved draft")
    person.click("Add an argument")
    person.click("Remove arg2")
    until(lambda: person.focused() == ("button", "Remove arg"))
    person.click("Remove arg")
    until(lambda: person.focused() == ("button", "+ Add an argument"))
    person.click("Delete", role="button")
    person.see("Deleted: brief 1")
    until(lambda: person.focused()[0] == "link" and person.focused()[1].startswith("meteo"))

    person.open("#/tools")
    person.click("numbers.describe", role="link")
    person.click("Add values")
    person.click("Add values")
    person.click("Remove values 2")
    until(lambda: person.focused() == ("button", "Remove values 1"))
    person.click("Remove values 1")
    until(lambda: person.focused() == ("button", "+ Add values"))


def test_a_notice_does_not_cover_what_one_saves_with(person, served):
    for slug in ("left", "kept"):
        served.put_tool(METEO, slug, TOOL)
    person.open(f"#/build?tool={METEO}/left/1")
    person.click("Delete", role="button")
    person.see("Deleted: left 1", "Undo")
    person.value(f"void (location.hash = '#/build?tool={METEO}/{slug}/1')")
    person.see("Save as version 2", "Undo")
    notice = person.value("document.querySelector('.notice').getBoundingClientRect().toJSON()")
    covered = f"""__person.all('main header button').filter((one) => one.checkVisibility()).filter((one) => {{
      const box = one.getBoundingClientRect();
      return box.right > {notice["left"]} && box.bottom > {notice["top"]} && box.top < {notice["bottom"]};
    }}).map((one) => one.innerText)"""
    assert person.value(covered) == []
    person.see("Undo")


def test_a_copy_is_said_to_be_without_the_draft(person, served):
    served.put_tool(METEO, "plain", TOOL)
    person.open(f"#/build?tool={METEO}/plain/1")
    person.click("Duplicate", role="button")
    assert person.reads("Name") == "plain-copy"
    person.see_no("Your unsaved changes stay in this draft.")
    person.press("Escape")
    person.type_into("Description", "Mine.")
    person.see("Unsaved draft")
    person.click("Duplicate", role="button")
    person.see("The saved version is copied. Your unsaved changes stay in this draft.")
    person.click("Duplicate", role="button")
    person.see("Copied: plain-copy")
    assert tool(served, METEO, "plain-copy", "1")["description"] == "Theirs."


def test_what_is_dropped_or_pasted_is_shown_before_it_comes(person, served, tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": HOSTILE, "version": "1"},
        "servers": [{"url": served.upstream.url}],
        "paths": {"/pets": {"get": {"operationId": "list-pets", "responses": {"200": {"description": "All."}}}}},
        "security": [{"key": []}],
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}},
    }
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    for place, target in (("#/tools", "Settings"), ("#/stats", "Settings"), ("#/build", "New bundle")):
        person.open(place)
        person.drop(target, file)
        person.see("An OpenAPI document", "pets.json", "list-pets", "What would be imported")
    person.type_into("Name of the bundle", "pets")
    person.see("pets\tBundle\tnew", f"onetool auth set PETS_API_KEY --host {served.upstream.url}")
    assert bundle_of(served, "pets") is None
    person.click("Import this")
    person.see("Imported: 1 item")
    assert tool(served, bundle_of(served, "pets"), "list-pets", "1")["httpImpl"]

    person.open("#/build?import=1")
    person.type_into("Or paste", f"curl {served.upstream.url}/v1/rates?base=EUR -H 'X-Api-Key: k-8f3a'")
    person.see("A curl command", "rates", "What would be imported")
    person.type_into("Or paste", "neither this nor that")
    person.see("Expected a ZIP archive")


def test_what_is_built_in_is_duplicated_into_a_bundle(person, served):
    one = served.tools()["numbers.add"]
    person.open(f"#/build?tool={one['bundleID']}/{one['slug']}/{one['version']}")
    person.see("can't be changed here")
    person.click("Duplicate into a bundle")
    person.choose("Bundle", "meteo")
    person.type_into("Name", "plus")
    person.click("Duplicate", role="button")
    person.see("Copied: plus", "meteo.plus")
    assert tool(served, METEO, "plus", "1")["pythonImpl"] == {"func": "numbers.add"}
    person.see("What would run")
    person.click("Close")
    assert person.axe() == []


def test_a_script_is_made_and_renamed_and_its_bundle_is_exported_deleted_and_comes_back(person, served, tmp_path):
    served.put_bundle(SHOES, "shoes")
    person.open(f"#/build?bundle={SHOES}")
    person.see("This bundle has no tools yet")
    person.click("New script", nth=1)
    person.type_into("Name", "double")
    person.click("Add an argument")
    person.type_into("Name of argument 1", "n")
    person.choose("Type of n", "integer")
    person.type_into("Code", "n * 2")
    person.press("Control+s")
    person.see("Saved: double 1", "shoes.double")
    person.click("Rename")
    person.type_into("Name", "twice")
    person.click("Rename", role="button")
    person.see("Renamed to twice 1", "shoes.twice")
    assert tool(served, SHOES, "double", "1") is None
    assert tool(served, SHOES, "twice", "1")["scriptImpl"] == {"code": "n * 2"}

    person.click("shoes", role="link")
    archive = export(person)
    (tmp_path / "shoes.zip").write_bytes(archive)
    assert any("twice" in name for name in zipfile.ZipFile(BytesIO(archive)).namelist())
    person.click("Delete")
    person.see("Deleted: shoes")
    assert bundle_of(served, "shoes") is None
    person.click("Undo", nth=-1)  # the one of the new name goes by itself, soon
    until(lambda: tool(served, SHOES, "twice", "1"))

    person.open("#/build?import=1")
    person.attach("input[type=file]", tmp_path / "shoes.zip")
    person.see("A bundle archive", "twice", "already here")
    person.type_into("Name of the bundle", "boots")
    person.see("boots\tBundle\tnew")
    person.click("Import this")
    person.see("Imported: 1 item")
    assert tool(served, bundle_of(served, "boots"), "twice", "1")["scriptImpl"] == {"code": "n * 2"}


def export(person):
    """The archive that Export gives to the browser."""
    keep = "Object.assign(globalThis, {kept: null}); URL.createObjectURL = (blob) => ((kept = blob), make(blob))"
    person.value(f"void ((make) => {{ {keep} }})(URL.createObjectURL)")
    person.click("Export")
    person.until("kept !== null")
    read = "Array.from(new Uint8Array(bytes), (one) => String.fromCharCode(one)).join('')"
    return base64.b64decode(person.value(f"kept.arrayBuffer().then((bytes) => btoa({read}))"))


def test_servers_of_another_client_come_with_their_token_in_the_secrets_file(browser, tmp_path):
    with harness(tmp_path, token=TOKEN) as served, browser.page(width=1280, height=800) as page:
        _import_servers(Person(page, served.url), served)


def _import_servers(person, served):
    token = "tok-5e1f0c7a9b2d"
    block = {"url": f"{served.upstream.url}/mcp", "headers": {"Authorization": f"Bearer {token}"}}
    person.open("#/build?import=1").sign_in(TOKEN)
    person.type_into("Or paste", json.dumps({"mcpServers": {"till": block}}))
    person.see("MCP servers", f"till\t{block['url']}\tnew", "Secrets that go into the secrets file")
    assert token not in person.value("document.querySelector('[role=region]').innerText")
    person.click("Import this")
    person.see("Imported: 1 item", "1 server", "till", "Unreachable")  # with why, as soon as it is known
    folder = served.server.folder
    assert token not in (folder / "onetool.yaml").read_text(encoding="utf-8")
    assert [one.name for one in folder.rglob("*") if one.is_file() and token.encode() in one.read_bytes()] == [
        "secrets.yaml"
    ]


def test_a_bundle_whose_deletion_stops_half_way_comes_back_and_what_is_gone_already_is_no_fault(person, served):
    served.put_bundle(HATS, "hats")
    for slug in ("bowler", "cap", "fez"):
        served.put_tool(HATS, slug, TOOL)
    person.open(f"#/build?bundle={HATS}")
    person.see("fez")
    meet(
        person,
        f"sent?.method === 'DELETE' && String(url).includes('/cap/') ? Promise.resolve({HTML_502}) : real(url, sent)",
    )
    person.click("Delete")
    person.see("HTTP 502")
    assert tool(served, HATS, "bowler", "1") is None
    person.click("Undo")
    until(lambda: tool(served, HATS, "bowler", "1"))

    person.reload()
    person.see("bowler")
    person.forgive("404")
    meet(person, "sent?.method === 'DELETE' ? real(url, sent).then(() => real(url, sent)) : real(url, sent)")
    person.click("Delete")
    person.see("Deleted: hats")
    assert bundle_of(served, "hats") is None
    person.click("Undo")
    until(lambda: all(tool(served, HATS, slug, "1") for slug in ("bowler", "cap", "fez")))


def test_a_server_in_trouble_is_told_and_one_can_save_again(person, served):
    person.open(f"#/build?bundle={METEO}")
    person.type_into("Display name", "The weather")
    meet(
        person,
        f"String(url).includes('{METEO}') ? Promise.resolve({HTML_502.replace('502', '412', 1)}) : real(url, sent)",
    )
    meet(
        person,
        f"sent?.method === 'GET' && String(url).includes('{METEO}') ? Promise.resolve({HTML_502}) : real(url, sent)",
    )
    person.press("Control+s")
    person.see("HTTP 502")
    assert person.attribute("Save", "disabled", role="button") is None

    person.value(f"location.hash = '#/build?tool={METEO}/report/1'")
    person.see("This tool can't be shown", "HTTP 502")


@contextmanager
def second_tab(browser, person):
    """One more tab of the same person: it has the same storage."""
    targets = browser.ask("Target.getTargets")["targetInfos"]
    context = next(one["browserContextId"] for one in targets if one["url"].startswith(person.url))
    target = browser.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    page = Page(browser, browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        page.ask(f"{domain}.enable")
    page.look(1280, 800, "light")
    other = Person(page, person.url)
    yield other
    assert other.faults() == []


def test_two_tabs_know_of_each_others_drafts(person, served, browser):
    person.open("#/build?new=http")
    with second_tab(browser, person) as other:
        other.open("#/build?new=script")
        other.type_into("Name", "of-the-other-tab")
        person.see("New script\ndraft")
        person.type_into("URL", "https://api.example.com/of-this-tab")
        other.see("New HTTP tool\ndraft")
        person.reload()
        person.see("New script\ndraft", "New HTTP tool\ndraft")


def test_build_draws_what_is_in_sight_of_many_tools(person, served):
    paths = {
        f"/many/{n}": {"get": {"operationId": f"many-{n}", "responses": {"200": {"description": "."}}}}
        for n in range(600)
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Many", "version": "1"},
        "servers": [{"url": served.upstream.url}],
    }
    done = served.api.post("/tools/imports/openapi?as=many", json={**document, "paths": paths})
    assert done.status_code == 200, done.text
    person.open(f"#/build?bundle={bundle_of(served, 'many')}")
    person.see("many-1", "Display name")
    assert person.value("document.querySelectorAll('*').length") < 2000
    headings = "Array.from(document.querySelectorAll('h1'), (one) => one.textContent)"
    assert person.value(headings) == ["Build", "many"]
    person.type_into("Filter bundles and tools", "MANY-599")
    person.click("many-599", role="link")
    person.see("many.many_599")
