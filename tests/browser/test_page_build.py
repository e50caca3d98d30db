"""Somebody builds tools on the page: a bundle, an HTTP tool, a version that somebody else has made, an import."""

import json

from browser.stage import METEO
from helpers import until

TOOL = {"type": "script", "description": "Theirs.", "scriptImpl": {"code": "1"}}
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"


def bundle_of(served, slug):
    listed = served.api.get("/tools/bundles?pageSize=1000").json()["bundles"]
    return next((one["id"] for one in listed if one["slug"] == slug), None)


def tool(served, bundle, slug, version):
    found = served.api.get(f"/tools/bundles/{bundle}/tools/{slug}/version/{version}")
    return found.json() if found.status_code == 200 else None


def test_a_bundle_and_an_http_tool_are_built_and_a_draft_survives_a_reload(person, served):
    person.open("#/build")
    person.click("New bundle")
    person.type_into("Slug", "shop")
    person.press("Control+s")
    person.see("Saved: shop", "No tools are in it yet")
    bundle = bundle_of(served, "shop")
    assert person.place == f"#/build?bundle={bundle}"

    person.type_into("Display name", "The shop")
    person.press("Control+s")
    until(lambda: served.api.get(f"/tools/bundles/{bundle}").json()["displayName"] == "The shop")
    assert served.api.get(f"/tools/bundles/{bundle}").json()["slug"] == "shop"
    person.see_no("Unsaved draft")

    person.click("New HTTP tool", nth=1)
    person.type_into("Slug", "price")
    person.type_into("Description", HOSTILE)
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
    assert person.reads("Slug") == "price"
    person.type_into("Value of days", "3")
    person.see(f"GET {served.upstream.url}/v1/item?days=3")
    person.press("Control+s")
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
    person.see("Version 2 was made elsewhere", "Of somebody else.", "differs")
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


def test_what_is_dropped_or_pasted_is_shown_before_it_comes(person, served, tmp_path):
    document = {
        "openapi": "3.1.0",
        "info": {"title": HOSTILE, "version": "1"},
        "servers": [{"url": served.upstream.url}],
        "paths": {"/pets": {"get": {"operationId": "list-pets", "responses": {"200": {"description": "All."}}}}},
    }
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    person.open("#/build")
    person.drop("New bundle", file)
    person.see("An OpenAPI document", "pets.json", "list-pets", "What would come")
    person.type_into("Slug of the bundle", "pets")
    assert bundle_of(served, "pets") is None
    person.see("pets")
    person.click("Import this")
    person.see("Imported: 1 item")
    assert tool(served, bundle_of(served, "pets"), "list-pets", "1")["httpImpl"]

    person.open("#/build?import=1")
    person.type_into("Or paste", f"curl {served.upstream.url}/v1/rates?base=EUR -H 'X-Api-Key: k-8f3a'")
    person.see("A curl command", "rates", "What would come")
    person.type_into("Or paste", "neither this nor that")
    person.see("This is no ZIP archive")


def test_what_is_built_in_is_duplicated_into_a_bundle(person, served, axe):
    one = served.tools()["numbers.add"]
    person.open(f"#/build?tool={one['bundleID']}/{one['slug']}/{one['version']}")
    person.see("can't be changed here")
    person.click("Duplicate into a bundle")
    person.choose("Bundle", "meteo")
    person.type_into("Slug", "plus")
    person.click("Duplicate", role="button")
    person.see("Copied: plus", "meteo.plus")
    assert tool(served, METEO, "plus", "1")["pythonImpl"] == {"func": "numbers.add"}
    person.see("What would run")
    person.click("Close")
    assert person.axe() == []
