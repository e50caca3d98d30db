"""Which answers of a recipe's steps are still good, which calls are not made again, and what survives a reload."""

INPUTS = ["cities", "key"]
STEPS = [
    {"name": "step1", "tool": "meteo.now", "args": {"city": "${item}"}, "each": "${cities}", "when": None},
    {"name": "step2", "tool": "mail.send", "args": {"text": "${step1}"}, "when": None},
    {"name": "step3", "tool": "mail.send", "args": {"text": "hello"}, "when": None},
    {"name": "step4", "tool": "log.add", "args": {"of": "${step2.id}", "key": "${key}"}, "when": None},
]
SAMPLES = {"cities": ["Rome"], "key": "hunter2"}


def good(value):
    return {"key": "k", "outcome": {"ok": True, "value": value}, "calls": ["c"], "isEach": False}


def keys(node, steps=STEPS, samples=SAMPLES, answers=None):
    given = {"recipe": {"steps": steps, "result": None}, "inputs": INPUTS, "samples": samples, "answers": answers or {}}
    return node("keys", given)[0]


def changed(one, other):
    return [step["name"] for step, a, b in zip(STEPS, one, other, strict=True) if a != b]


def test_an_answer_is_old_when_anything_that_led_to_it_is_another(node):
    first = keys(node, answers={"step1": good(1), "step2": good({"id": 1})})
    assert changed(first, keys(node, answers={"step1": good(1), "step2": good({"id": 1})})) == []
    assert changed(first, keys(node, answers={"step1": good(2), "step2": good({"id": 1})})) == ["step2", "step4"]
    assert changed(first, keys(node, answers={"step1": good(1), "step2": good({"id": 2})})) == ["step4"]
    other = keys(node, samples={**SAMPLES, "cities": []}, answers={"step1": good(1), "step2": good({"id": 1})})
    assert changed(first, other) == ["step1", "step2", "step4"]
    steps = [{**STEPS[0], "tool": "meteo.later"}, *STEPS[1:]]
    assert changed(first, keys(node, steps, answers={"step1": good(1), "step2": good({"id": 1})})) == [
        "step1",
        "step2",
        "step4",
    ]
    assert "hunter2" not in "".join(first)


def test_what_an_argument_has_led_to_is_known_through_other_steps(node):
    recipe = {"steps": STEPS, "result": None}
    assert node("led", {"recipe": recipe, "inputs": INPUTS, "some": ["cities"]})[0] == [True, True, False, True]
    assert node("led", {"recipe": recipe, "inputs": INPUTS, "some": ["key"]})[0] == [False, False, False, True]


def test_a_call_that_was_made_is_taken_once(node):
    whole = {"key": "k", "outcome": {"ok": True, "value": [1, 2, 3]}, "calls": ["a", "b", "a"], "isEach": True}
    answer = {"key": "", "outcome": None, "calls": ["a", "b", "a"], "values": [1, 2, 3], "isEach": True}
    assert node("taken", {"answer": whole, "calls": ["b"]})[0][0] == [{"call": "b", "value": 2}]
    assert node("taken", {"answer": good([1]), "calls": ["c"]})[0][0] == [{"call": "c", "value": [1]}]
    [[found, left]] = node("taken", {"answer": answer, "calls": ["a", "c", "a", "a"]})
    assert found == [{"call": "a", "value": 1}, None, {"call": "a", "value": 3}, None]
    assert left == [{"call": "b", "value": 2}]


def test_answers_that_are_too_large_do_not_take_the_others_with_them(node):
    answers = {"step1": good("x" * 5000), "step2": good([1, 2]), "step3": good(None)}
    [found] = node("kept", {"answers": answers, "most": 1000})
    assert found["without"] == ["step1"]
    assert found["size"] <= 1000
    assert found["read"] == {name: answers[name] for name in ("step2", "step3")}
    [found] = node("kept", {"answers": answers, "most": 10_000})
    assert found["read"] == answers


def test_a_renamed_argument_is_another_one_wherever_it_is_used(node):
    when = {"left": "${cities[0]}", "operator": "==", "right": "a ${cities} $${cities} ${town}"}
    recipe = {"steps": [{**STEPS[0], "when": when}], "result": '${table(cities, "a")}'}
    [found] = node("renamed", {"recipe": recipe, "from": "cities", "to": "town", "inputs": INPUTS})
    assert found["steps"][0]["each"] == "${town}"
    assert found["steps"][0]["when"] == {
        "left": "${town[0]}",
        "operator": "==",
        "right": "a ${town} ${cities} $${town}",
    }
    assert found["result"] == '${table(town, "a")}'


def test_an_unknown_name_is_said_where_it_stands(node):
    value = {"a b/c": ["x ${gone} ${cities}"], "d": "$${gone} ${gone.x} ${gone}"}
    [found] = node("unknown", {"value": value, "names": ["cities"]})
    assert found == [{"pointer": "/a b~1c/0", "name": "gone"}, {"pointer": "/d", "name": "gone"}]


def test_what_the_browser_keeps_of_arguments_has_no_secret(node):
    schema = {"properties": {"key": {"type": "string", "format": "password"}, "city": {"type": "string"}}}
    texts = ['{"key": "hunter2", "city": "Rome"}', '{"key": "hunter2', "[]"]
    found = node("withoutSecrets", *({"text": one, "schema": schema} for one in texts))
    assert found == ['{\n  "city": "Rome"\n}', None, None]
    assert node("withoutSecrets", {"text": '{"city": ', "schema": {"properties": {}}}) == ['{"city": ']
