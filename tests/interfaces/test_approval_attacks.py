"""Attempts to have a person approve something else than what runs, or to run it without a yes."""

import asyncio
import unicodedata

import pytest
from ask.harness import Harness
from ask.stand_in import Says, Wants
from interfaces.cli.ask.shop import shop as shop  # a fixture
from interfaces.cli.ask.test_terminal_output import SPEC, Typist
from interfaces.rest.ask.asgi_client import users
from interfaces.rest.ask.test_approvals import PACK, run, wants, written

from onetool import ToolCall
from onetool.interfaces.cli.ask.terminal import Approver

AREA = "approvals"

# Each of these texts looks like another one, or like nothing, unless it is told.
DISGUISED = {
    "turned around": "pay \u202eeciruE",
    "embedding": "pay \u202bAlice",
    "isolate": "pay \u2067Alice\u2069",
    "right-to-left mark": "a\u200fb",
    "zero-width space": "a\u200bb",
    "zero-width joiner": "a\u200db",
    "word joiner": "a\u2060b",
    "byte order mark": "a\ufeffb",
    "soft hyphen": "al\u00adice",
    "tag characters": "ok" + "".join(chr(0xE0000 + ord(sign)) for sign in "rm -rf"),
    "variation selector": "ok\ufe0f",
    "supplement of them": "ok\U000e0100\U000e0101",
    "Hangul filler": "pay\u3164all",
    "half-width filler": "pay\uffa0all",
    "blank of Braille": "pay\u2800all",
    "blank note": "pay\U0001d159all",
    "grapheme joiner": "al\u034fice",
    "Mongolian separator": "al\u180eice",
    "no-break space": "rm\u00a0-rf",
    "em space": "rm\u2003-rf",
    "line separator": "a\u2028Run it? y",
    "next line": "a\u0085Run it? y",
    "carriage return": "delete all\rkeep all",
    "backspaces": "delete\b\b\b\b\b\bkeep",
    "escape": "\x1b[2K\x1b[1Akeep",
    "C1 control": "\x9b2Kkeep",
    "delete": "a\x7fb",
    "null": "keep\0delete",
    "bell": "a\ab",
    "form feed": "a\fb",
    "stray mark": "= \u0338b",
    "private use": "a\ue000b",
    "unassigned": "a\u0378b",
    "interlinear": "a\ufff9b\ufffa",
    "Cyrillic in Latin": "p\u0430ypal.com",
    "Greek in Latin": "g\u03bfogle.com",
    "Latin in Cyrillic": "\u0441\u0431e\u0440",
    "Cherokee in Latin": "\u13aaoogle",
    "fullwidth in Latin": "a\uff41a",
    "mathematical": "\U0001d4eapay",
    "Cyrillic alone": "\u0440\u0430\u0443\u0440\u0430.com",
    "Cyrillic host": "https://\u0430\u0440\u0440\u04cf\u0435.com/login",
    "Greek alone": "\u03bf\u03bd\u03bf",
}


def is_visible(text):
    """Nothing in it hides, moves the cursor or turns text around."""
    blank = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159"
    return not any(
        unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
        or (unicodedata.category(sign) == "Zs" and sign != " ")
        or sign in blank
        or "\ufe00" <= sign <= "\ufe0f"
        or sign >= "\U000e0000"
        for sign in text.replace("\n", "")
    )


@pytest.mark.attack(AREA, len(DISGUISED))
def test_no_disguise_goes_untold_over_rest(tmp_path):
    with Harness(tmp_path, packs={"notes": PACK}) as harness:
        harness.model.will(wants(*DISGUISED.values()), "Done.")

        async def asked():
            found = {}
            client = users(harness.app)
            async with client.asking() as stream:
                for place, name in enumerate(DISGUISED):
                    told = await stream.next("approval", place)
                    found[name] = told["args"]["text"], told["warnings"]
                    await client.decide(told, False)
                await stream.end()
            return found

        found = run(asked())
        assert {name: text for name, (text, _) in found.items()} == DISGUISED  # whole, as it would run
        assert [name for name, (_, warnings) in found.items() if not warnings] == []
        assert written(harness) == []


@pytest.mark.attack(AREA, len(DISGUISED))
def test_no_disguise_goes_untold_at_a_terminal(shop):
    calls = [Wants("shop__buy", {"item": text}) for text in DISGUISED.values()]
    shop.model.will(Says(calls=calls), "Done.")
    wrong = []
    with shop.terminal("Buy.") as terminal:
        for name in DISGUISED:
            shown = terminal.until("[n]: ").partition("may change something:")[2].partition("Run shop.buy")[0]
            is_told = "  ! " in shown or any(code in shown for code in ("\\u", "\\x", "\\U", "\\b", "\\r", "\\f"))
            if not is_told or not is_visible(shown):
                wrong.append((name, shown))
            terminal.type(b"n\n")
        assert terminal.ended() == 0
    assert wrong == []


# Who decides, and how often


BODIES = {
    "text": '{"approve": "true"}',
    "number": '{"approve": 1}',
    "list": '[{"approve": true}]',
    "alone": "true",
    "both": '{"approve": false, "approve": true}',
    "both, the other way": '{"approve": true, "approve": false}',
    "other case": '{"Approve": true}',
    "more": '{"approve": true, "always": true}',
    "nested": '{"approve": {"approve": true}}',
    "nothing": "",
    "BOM": '\ufeff{"approve": true}',
    "two": '{"approve": true}{"approve": true}',
    "comment": '{"approve": true} // yes',
    "deep": "[" * 10_000,
    "null": '{"approve": null}',
    "NaN": '{"approve": true, "x": NaN}',
}
CHANGES = {
    "other user": {"user": "bob"},
    "user in capitals": {"user": "ADA"},
    "user with a space": {"user": "ada "},
    "user that looks like her": {"user": "\u0430da"},
    "tool": {"headers": {"OneTool-Call": "1"}},
    "tool, empty": {"headers": {"OneTool-Call": ""}},
    "other origin": {"headers": {"Origin": "https://evil.example"}},
    "other site": {"headers": {"Sec-Fetch-Site": "cross-site"}},
    "form": {"headers": {"content-type": "application/x-www-form-urlencoded"}},
    "text": {"headers": {"content-type": "text/plain"}},
    "GET": {"method": "GET"},
    "PUT": {"method": "PUT"},
    "PATCH": {"method": "PATCH"},
    "HEAD": {"method": "HEAD"},
    "method in a header": {"method": "GET", "headers": {"X-HTTP-Method-Override": "POST"}},
    "other call": {"call": "call_999"},
    "call of nothing": {"call": ""},
    "any call": {"call": "*"},
    "call in capitals": {"call": str.upper},
    "call with a path": {"call": lambda call: f"../approvals/{call}"},
    "call with a null": {"call": lambda call: f"{call}%00"},
    "question in capitals": {"question": str.upper},
    "half a question": {"question": lambda question: question[:16]},
    "question and more": {"question": lambda question: f"{question}0"},
    "last question": {"question": "last"},
    "question of zeros": {"question": "0" * 32},
}


@pytest.mark.attack(AREA, len(BODIES) + len(CHANGES))
def test_nothing_but_a_yes_of_who_asked_lets_it_run(tmp_path):
    with Harness(tmp_path, packs={"notes": PACK}) as harness:
        harness.model.will(wants("one"), "Done.")

        async def asked():
            through = {}
            client = users(harness.app)
            async with client.asking() as stream:
                told = await stream.next("approval")
                path = f"/ask/{told['question']}/approvals/{told['call']}"
                for name, body in BODIES.items():
                    reply = await client.send("POST", path, data=body.encode())
                    through |= {name: reply.status} if reply.status < 400 else {}
                for name, change in CHANGES.items():
                    method, ids = change.pop("method", "POST"), dict(told)
                    for part in {"question", "call"} & change.keys():
                        other = change.pop(part)
                        ids[part] = other(ids[part]) if callable(other) else other
                    if ids["call"] == told["call"] and "call" in CHANGES[name]:
                        continue
                    target = f"/ask/{ids['question']}/approvals/{ids['call']}"
                    reply = await client.send(method, target, {"approve": True}, **change)
                    through |= {name: reply.status} if reply.status < 400 else {}
                await asyncio.sleep(0.1)
                assert (through, written(harness)) == ({}, [])
                assert (await client.decide(told, False)).status == 204
                return await stream.end()

        assert run(asked()).data["answer"]["denied"] == ["notes.write"]
        assert written(harness) == []


@pytest.mark.attack(AREA, 4)
def test_each_of_several_calls_at_once_has_a_yes_of_its_own(tmp_path):
    """The same arguments twice, one that is approved twice, and one that is never decided."""
    code = (
        "import asyncio\n"
        "async def one(text):\n"
        "    try:\n"
        "        return await notes.write(text=text)\n"
        "    except Exception as error:\n"
        "        return 'no'\n"
        "await asyncio.gather(one('a'), one('a'), one('b'), one('c'))"
    )
    with Harness(tmp_path, packs={"notes": PACK}) as harness:
        harness.model.will(Says(calls=[Wants("run", {"code": code})]), "Done.")

        async def asked():
            client = users(harness.app)
            statuses = []
            async with client.asking(menu="run") as stream:
                open_ones = []
                for place in range(4):
                    told = await stream.next("approval", place)
                    open_ones.append(told)
                    if len({one["call"] for one in open_ones}) != len(open_ones):
                        raise AssertionError("two calls have one id")
                    if told["args"]["text"] == "b":
                        replies = await asyncio.gather(*(client.decide(told, yes) for yes in (False, True, True)))
                        statuses += [reply.status for reply in replies]
                    elif place == 0:
                        replies = await asyncio.gather(*(client.decide(told, True) for _ in range(3)))
                        statuses += [reply.status for reply in replies]
                    else:
                        await client.decide(told, False)
                await stream.end()
            return statuses

        assert sorted(run(asked())) == [204, 204, 409, 409, 409, 409]
        assert written(harness) == ["a"]


@pytest.mark.attack(AREA, 2)
@pytest.mark.parametrize("menu", ["direct", "run"])
def test_a_tool_that_is_replaced_meanwhile_is_not_the_one_that_was_approved(tmp_path, menu):
    with Harness(tmp_path, packs={"notes": PACK}) as harness:
        code = 'notes.write(text="one")'
        harness.model.will(wants("one") if menu == "direct" else Says(calls=[Wants("run", {"code": code})]), "Done.")

        async def asked():
            client = users(harness.app)
            async with client.asking(menu=menu) as stream:
                told = await stream.next("approval")
                (tmp_path / "notes.py").write_text(PACK.replace("file.write(text", "file.write('evil' + text"))
                await asyncio.to_thread(harness.app.reload)
                assert (await client.decide(told)).status == 204
                return await stream.end()

        run(asked())
        assert written(harness) in ([], ["one"])


# "Always"


def changed(**fields):
    import msgspec

    return msgspec.structs.replace(SPEC, **fields)


ALWAYS = {
    "other schema": changed(input_schema={"type": "object", "properties": {"to": {"type": "string"}}}),
    "other description": changed(description="Buy everything."),
    "other handler": changed(handler=lambda: None),
    "lookalike": changed(name="shop.bu\u0443"),
    "other case": changed(name="shop.Buy"),
    "longer name": changed(name="shop.buy2"),
    "other pack": changed(name="other.buy"),
}


@pytest.mark.attack(AREA, len(ALWAYS))
def test_always_is_for_the_tool_that_was_shown():
    async def decide(spec):
        typist = Typist("a", "n")
        approver = Approver(typist, lambda value: value, lambda: None)
        assert await approver(ToolCall("1", "shop.buy", {}), SPEC)
        assert await approver(ToolCall("2", "shop.buy", {}), SPEC)  # this one stays
        return await approver(ToolCall("3", spec.name, {}), spec)

    assert [name for name, spec in ALWAYS.items() if asyncio.run(decide(spec))] == []
