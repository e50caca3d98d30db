"""Somebody types code on the page: brackets close, lines are indented, what is wrong is underlined and explained."""

import json

CODE = "Python code"
COLOURED = "Object.fromEntries(['comment', 'string', 'number', 'keyword', 'name'].map((kind) => [kind, __person.all(`.cm-${kind}`).map((one) => one.textContent)]))"  # noqa: E501


def keys(person, text):
    """One key after the other: as a whole it would come as a paste does."""
    for one in text:
        if one == "\n":
            person.press("Enter")
        else:
            person.write(one)


def stands(person, text, label=CODE):
    lines = f"__person.where('field', {json.dumps(label)}, null, 0).querySelectorAll('.cm-line')"
    asked = f"[...{lines}].map((one) => one.textContent).join('\\n')"
    person.until(f"{asked} === {json.dumps(text)}", f"read {text!r} instead of {person.value(asked)!r}")


def test_typing_is_helped(person):
    person.open("#/play")
    person.click(CODE)
    keys(person, 'if f(1):\nprint("it\'s ok")')
    stands(person, 'if f(1):\n    print("it\'s ok")')
    person.press("Enter Backspace")
    keys(person, "x=[\n1")
    stands(person, 'if f(1):\n    print("it\'s ok")\nx=[\n    1\n]')
    person.press("Control+a Tab")
    stands(person, '    if f(1):\n        print("it\'s ok")\n    x=[\n        1\n    ]')
    person.press("Shift+Tab")
    person.press("Control+End Backspace Backspace")
    stands(person, 'if f(1):\n    print("it\'s ok")\nx=[\n    1')
    person.press("Control+z Control+z Control+a Delete")
    stands(person, "")
    keys(person, "((")
    person.press("Backspace Delete")
    stands(person, "(")
    person.press("Backspace")
    keys(person, "a b")
    person.press("Shift+Home")
    keys(person, "(")
    stands(person, "(a b)")
    person.press("End Control+/")
    stands(person, "# (a b)")
    person.press("Control+/ Alt+Shift+ArrowUp")
    stands(person, "(a b)\n(a b)")
    person.press("Escape Tab")
    assert person.focused()[1] != CODE


def test_code_has_colours_and_brackets_show_their_pair(person):
    person.open("#/play")
    code = 'def f(a): # why (\n    return rb"x(" + """two\nlines\\""" (""" + 0x1F\nprint(None, f([1]))'
    person.type_into(CODE, code)
    stands(person, code)
    person.until("__person.all('.cm-pair').length === 2")
    assert person.value("__person.all('.cm-pair').map((one) => one.textContent)") == ["(", ")"]
    assert person.value(COLOURED) == {
        "comment": ["# why ("],
        "string": ['rb"x("', '"""two', 'lines\\""" ("""'],
        "number": ["0x1F", "None", "1"],
        "keyword": ["def", "return"],
        "name": ["f", "print", "f"],
    }
    person.press("ArrowLeft")
    person.until("__person.all('.cm-pair').map((one) => one.textContent).join('') === '()'")
    assert person.value("__person.all('.cm-pair')[0].previousSibling.textContent") == "f"


def test_what_is_wrong_is_underlined_and_its_message_is_reached_by_key_and_pointer(person):
    person.open("#/tools")
    person.click("numbers.add", role="link")
    person.click("JSON", role="tab")
    label = "Arguments as JSON"
    person.type_into(label, '{\n  "a": 1,\n  "b": ?\n}')
    person.until("__person.all('.cm-lintRange-error').map((one) => one.textContent).includes('?')")
    assert person.attribute(label, "aria-invalid") == "true"
    assert person.value("__person.all('.cm-gutter-problems span').length") == 1
    person.press("F8")
    said = person.until("__person.all('[role=tooltip]')[0]?.textContent")
    assert "3" in said
    assert person.value("__person.all('.cm-announced')[0].textContent") == said
    assert person.axe() == []
    person.press("Escape")
    person.until("__person.all('[role=tooltip]').length === 0")
    for place in (".cm-lintRange-error", ".cm-gutter-problems span"):
        box = person.value(f"__person.all('{place}')[0].getBoundingClientRect().toJSON()")
        spot = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        person.page.ask("Input.dispatchMouseEvent", type="mouseMoved", **spot)
        person.until(f"__person.all('[role=tooltip]')[0]?.textContent === {json.dumps(said)}")
        person.page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
        person.until("__person.all('[role=tooltip]').length === 0")
    person.type_into(label, '{"a": 1}')
    person.until("__person.all('.cm-lintRange-error').length === 0")
    assert person.attribute(label, "aria-invalid") is None
