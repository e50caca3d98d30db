"""Somebody builds a request on the page, and sends it before it is saved."""

import json

import pytest
from browser.harness import METEO
from browser.person import Person
from browser.screens import look
from upstream import Reply

JSON = {"Content-Type": "application/json", "Set-Cookie": "session=s3cr3t"}
NEW = f"#/build?new=http&bundle={METEO}"
WORDS = {
    "en": ("Send", "Make it an argument", "What the tool returns", "Body", "Headers"),
    "zh-CN": ("发送", "设为参数", "工具返回的内容", "响应体", "响应头"),
}


@pytest.fixture
def upstream(served):
    before = len(served.upstream.seen)
    served.upstream.say(lambda seen: Reply(200, JSON, b'{"sky": "clear", "asked": "%s"}' % seen.method.encode(), "OK"))
    served.upstream.new = lambda: served.upstream.seen[before:]
    return served.upstream


def versions(served):
    listed = served.api.get("/tools/tools?recommendedPageSize=1000&includeDisabled=true").json()["tools"]
    return sorted(f"{one['bundleID']}/{one['slug']}@{one['version']}" for one in listed)


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("zh-CN", "dark")])
def test_a_request_is_sent_as_it_stands_and_nothing_is_stored(browser, served, upstream, language, scheme):
    send, argument, returns, body, headers = WORDS[language]
    before = versions(served)
    with browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        look(person, language, scheme, 1280)
        person.open(NEW)
        person.until("document.activeElement.matches('[data-at$=urlTemplate]')")
        line = "[...document.querySelectorAll('[data-at$=method], [data-at$=urlTemplate]')]"
        assert person.value(f"{line}.every((one) => one.getBoundingClientRect().bottom < 300)")
        person.press("Control+a")
        person.write(f"{upstream.url}/v1/${{city}}")
        person.click(argument, role="button")
        person.see_no(argument)
        person.see(f"{upstream.url}/v1/city")
        assert upstream.new() == []
        person.click(send, role="button")
        person.see("200 OK", returns, "clear")
        assert [one.target for one in upstream.new()] == ["/v1/city"]
        person.click(f"{headers} 3", role="tab")
        person.see("set-cookie", "***")
        person.see_no("s3cr3t")
        person.click(body, role="tab", nth=-1)  # in English, the request has such a tab, too
        person.see('"asked": "GET"')
        assert person.axe() == []
        assert person.overflow() == []
        assert person.faults() == []
    assert versions(served) == before


def test_what_may_change_something_is_asked_about_once(person, served, upstream):
    person.open(NEW)
    person.type_into("URL", f"{upstream.url}/v1/orders")
    person.choose("Method", "POST")
    person.press("Control+Enter")
    person.see("Send a POST request?", "It may change data")
    assert upstream.new() == []
    person.click("Send", role="button", nth=-1)
    person.see("200 OK")
    person.press("Control+Enter")
    person.until("true")
    person.see_no("Send a POST request?")
    person.see("200 OK")
    assert {one.method for one in upstream.new()} == {"POST"}


def test_a_secret_is_asked_for_and_a_file_is_a_field(person, served, upstream):
    person.open(NEW)
    person.type_into("URL", f"{upstream.url}/v1/files?key=${{FILES_KEY}}")
    person.see("${FILES_KEY} is not defined.")
    person.click("Make it a secret")
    person.see("onetool auth set FILES_KEY")
    person.type_into("URL", f"{upstream.url}/v1/files")
    person.click("Body", role="tab")
    person.choose("Body", "Fields and files (multipart)")
    person.click("Make it an argument")
    person.see_no("Make it an argument")
    person.type_into("Arguments of the preview", '{"file": "data:text/plain;name=a.txt,hello"}')
    person.press("Control+Enter")
    person.click("Send", role="button", nth=-1)
    person.see("200 OK")
    [seen] = upstream.new()
    assert b'filename="a.txt"' in seen.body
    assert b"hello" in seen.body


def test_a_name_and_a_new_bundle_come_with_save(person, served, upstream):
    person.open(NEW)
    person.type_into("URL", f"{upstream.url}/v1/named")
    person.press("Control+s")
    person.see("In code")
    person.click("Save", role="button", nth=-1)
    person.until("document.activeElement?.dataset.at === '/slug'")
    person.choose("Bundle", "New bundle…")
    person.type_into("New bundle", "made-here")
    person.type_into("Name", "named")
    person.see("made_here.named")
    person.click("Save", role="button", nth=-1)
    person.see("Saved: named 1")
    assert "made_here.named" in served.tools()
    assert person.place == "#/build?tool=made_here.named"
    person.click("Save as version 2", role="button")
    person.type_into("Description", "What it is good for.")
    person.click("Save as version 2", role="button", nth=-1)
    person.see("Saved: named 2", "Save as version 3")
    assert person.place == "#/build?tool=made_here.named"


def test_a_command_that_is_pasted_as_url_is_imported(person, served, upstream):
    person.open(NEW)
    person.until("document.activeElement.matches('[data-at$=urlTemplate]')")
    command = json.dumps(f"curl -H 'X-Kind: a' {upstream.url}/v1/pasted")
    pasted = f"(() => {{ const data = new DataTransfer(); data.setData('text', {command}); return data; }})()"
    event = f"new ClipboardEvent('paste', {{bubbles: true, cancelable: true, clipboardData: {pasted}}})"
    person.value(f"void document.activeElement.dispatchEvent({event})")
    person.until("location.hash === '#/build?import=1'")
    person.until("document.querySelector('main textarea').value.includes('X-Kind: a')")
    person.see("Import")


def test_names_in_braces_of_a_pasted_url_become_placeholders(person, served, upstream):
    person.open(NEW)
    person.until("document.activeElement.matches('[data-at$=urlTemplate]')")
    person.press("Control+a")
    person.paste_text(f"{upstream.url}/v1/{{city}}?days=${{days}}")
    person.until(f"document.activeElement.value === '{upstream.url}/v1/${{city}}?days=${{days}}'")
    person.click("Make it an argument", role="button")
    person.click("Make it an argument", role="button")
    person.click("Send", role="button")
    person.see("200 OK")
    assert [one.target for one in upstream.new()] == ["/v1/city?days=days"]


def test_the_request_line_fits_a_phone(browser, served):
    with browser.page(width=390, height=844) as page:
        person = Person(page, served.url)
        person.open(NEW).see("Send")
        wide = "document.querySelector('[data-at$=urlTemplate]').getBoundingClientRect().width"
        person.until(f"{wide} > 300")
        assert person.overflow() == []
