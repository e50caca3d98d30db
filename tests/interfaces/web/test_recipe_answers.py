"""Which answers of a recipe's steps are still good, which calls are not made again, and what survives a reload."""

INPUTS = ["cities", "key"]
STEP = {"name": "step1", "tool": "mail.send", "args": {"text": "${step1}", "n": 1}, "each": "${cities}", "when": None}
KNOWN = {"step1": [{"id": 1}], "cities": ["Rome"], "other": 5}


def good(value):
    return {"key": "k", "outcome": {"ok": True, "value": value}, "calls": ["c"], "isEach": False}


def test_an_answer_is_old_when_anything_that_led_to_it_is_another(node):
    when = {"left": "${other}", "operator": "==", "right": "hunter2"}
    others = [({**STEP, "tool": "mail.draft"}, KNOWN), ({**STEP, "args": {"text": "${step1}"}}, KNOWN)]
    others += [({**STEP, "each": ["Rome"]}, KNOWN), ({**STEP, "when": when}, KNOWN)]
    others += [(STEP, {**KNOWN, "step1": [{"id": 2}]}), (STEP, {**KNOWN, "cities": []})]
    same = [(STEP, KNOWN), ({**STEP, "name": "step7"}, KNOWN), (STEP, {**KNOWN, "other": 6})]
    keys = node("key", *({"step": step, "known": known} for step, known in [*same, *others]))
    assert len(set(keys[:3])) == 1
    assert len(set(keys)) == 1 + len(others)
    assert "hunter2" not in "".join(keys)


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
    when = {"left": "${cities[0]}", "operator": "==", "right": "a ${cities} $${cities} ${town} $${key}"}
    recipe = {"steps": [{**STEP, "when": when}], "result": '${table(cities, "a")}'}
    [found] = node("renamed", {"recipe": recipe, "from": "cities", "to": "town", "inputs": INPUTS})
    assert found["steps"][0]["each"] == "${town}"
    assert found["steps"][0]["when"] == {
        "left": "${town[0]}",
        "operator": "==",
        "right": "a ${town} ${cities} ${town} $${key}",
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
