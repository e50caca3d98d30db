"""What the code editor offers while one types: lib/editor/code-names.ts, run by Node."""

PARAMETERS = [{"name": "city", "type": "str"}, {"name": "days", "type": "int", "default": 3}]
NOW = {
    "name": "now",
    "tool": "meteo.now",
    "signature": "meteo.now(city)",
    "summary": "The weather.",
    "parameters": PARAMETERS,
}
NAMES = {
    "packs": [{"name": "meteo", "tools": [NOW]}],
    "functions": [],
    "builtins": ["str", "sum"],
    "modules": ["json"],
    "snippets": [
        {
            "name": "research",
            "description": "Looks it up.",
            "usage": "$research topic=… [count=3]",
            "parameters": PARAMETERS,
        }
    ],
    "aliases": {"sky": "meteo.now"},
}


def offered(node, code, **more):
    [found] = node("offers", {"code": code, "names": NAMES, "isAsked": False, **more})
    return None if found is None else [one["text"] for one in found["offers"]]


def test_an_alias_has_the_help_and_the_arguments_of_its_tool(node):
    [found] = node("offers", {"code": "x = sk", "names": NAMES, "isAsked": False})
    [offer] = found["offers"]
    assert (offer["text"], offer["insert"], offer["info"], offer["detail"]) == (
        "sky",
        "sky()",
        "The weather.",
        "(city)",
    )
    assert offered(node, "sky(") == ["city=", "days="]
    assert offered(node, "sky(city='x', ") == ["days="]


def test_snippets_are_offered_where_they_can_be_called(node):
    [found] = node("offers", {"code": "$re", "names": NAMES, "isAsked": False})
    [offer] = found["offers"]
    assert (found["word"], offer["insert"], offer["info"]) == ("$re", "$research ", "Looks it up.")
    assert offered(node, "$research ") == ["city=", "days="]
    assert offered(node, "$research city=Rome\nda") == ["days="]
    assert offered(node, "$research city=Ro") is None
    assert offered(node, "x = $re") != ["$research"]


def test_nothing_is_offered_within_texts_and_comments(node):
    within = [
        'x = """\nme',
        "x = '''a\n\"b\" me",
        'x = """a\\""" me',
        'x = "me',
        "# me",
        'x = 1 # "a" me',
        "x = 'it\\'s me",
    ]
    assert [one for one in within if offered(node, one) is not None] == []
    behind = ['x = """\na""" + me', "# it's\nme", 'x = "#" + me', "x = ''' \" ''' + me", 'x = "a\nme']
    assert [one for one in behind if offered(node, one) != ["meteo"]] == []
