"""`onetool bundles save` and `add-curl`: code and commands that worked once become tools."""

import json
import stat

import pytest
from interfaces.cli.bundling import did, refused, run
from interfaces.cli.bundling import here as here  # a fixture

from onetool.app import App
from onetool.interfaces.cli.bundles.add_tools import arg_schema, read_argument, unbound_names
from onetool.script.parse import CodeScan

pytestmark = pytest.mark.usefixtures("here")

TOKEN = "sk-0123456789abcdefghij0123"  # looks like one, and is none


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        with App.open() as app:
            yield app.runtime.engine.names(app.catalog.registry.snapshot())


# What code leaves open


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("fs.list_dir(path=path)[:count]", ["path", "count"]),
        ("total = 0\nfor item in items:\n    total += item\ntotal", ["items"]),
        ("[x * factor for x in values if x]", ["factor", "values"]),
        ("def double(x):\n    return x * by\ndouble(number)", ["by", "number"]),
        ("import json\njson.dumps(data)", ["data"]),
        ("text.upper().split()", ["text"]),
        ("print(len(str(n)))", ["n"]),
        ("lambda a: a + b", ["b"]),
        ("try:\n    1 / n\nexcept ZeroDivisionError as error:\n    str(error)", ["n"]),
        ("json.dumps(data)", ["data"]),  # an import is missing, and the check will say so
        ("brve.search(query)", ["query"]),  # as it will of a pack that is not there
        ("missing(1)", []),
        ("time.now()", []),
        ("1 +", []),
    ],
)
def test_free_names_become_arguments(code, found, names):
    assert sorted(unbound_names(CodeScan(code), names)) == sorted(found)


def test_arguments_come_in_the_order_of_their_use(names):
    assert unbound_names(CodeScan("f'{b} {a}' + c"), names) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("n", {}),
        ("n:any", {}),
        ("n:integer", {"type": "integer"}),
        ("n:int=5", {"type": "integer", "default": 5}),
        ("n:str=5", {"type": "string", "default": "5"}),
        ("n:string=", {"type": "string", "default": ""}),
        ("n:string=a=b:c", {"type": "string", "default": "a=b:c"}),
        ("n:bool=true", {"type": "boolean", "default": True}),
        ("n:list=[1, 2]", {"type": "array", "default": [1, 2]}),
        ("n=plain", {"default": "plain"}),
        ("n=null", {"default": None}),
    ],
)
def test_the_types_of_arguments(text, schema):
    assert read_argument(text).schema == schema


@pytest.mark.parametrize("text", ["n:int=five", "n:int=1.5", "n:number=[]", "n:word", "n-m:string", ":string", "n:=5"])
def test_wrong_types_are_told(text):
    with pytest.raises(ValueError, match=r"type|JSON|name|expected|integer|number"):
        read_argument(text)


def test_what_was_described_comes_first_and_the_rest_may_be_anything():
    given = {"count": read_argument("count:integer=3")}
    assert arg_schema(["path", "count"], given) == {
        "type": "object",
        "properties": {"count": {"type": "integer", "default": 3}, "path": {}},
        "required": ["path"],
    }


# save


def test_code_is_kept_as_a_tool_and_runs(here):
    code = here / "first.py"
    code.write_text('"""The first files of a folder."""\n[one["path"] for one in fs.list_dir(path=path)][:count]\n')
    kept = did("save", "files/first", code, "--create", "--arg", "count:int=1", "--arg", "path:str")
    assert kept["description"] == "The first files of a folder."
    assert list(kept["argSchema"]["properties"]) == ["count", "path"]
    with App.open() as app:
        assert app.run_sync('files.first(path=".")').data == ["echo.json"]
        assert app.run_sync('files.first(path=".", count=2)').data == ["echo.json", "first.py"]


def test_a_dry_run_checks_and_keeps_nothing():
    fenced = "```python\n1 + number\n```\n"
    drafted = did("save", "files/sum@3", "-", "--dry-run", "--description", "Adds one.", stdin=fenced)
    assert (drafted["slug"], drafted["version"], drafted["scriptImpl"]["code"].strip()) == ("sum", "3", "1 + number")
    assert "There is no bundle files" in refused("show", "files")
    assert "there is no pack brve" in refused("save", "files/x", "-", "--dry-run", stdin="brve.search(1)")


def test_what_save_says_of_it():
    done = run("save", "files/sum", "-", "--create", stdin="1 + number")
    assert "Arguments of any type: number. To set a type: --arg number:string" in done.stderr
    assert "--description" in done.stderr
    assert "did you mean number?" in refused("save", "a/b", "-", "--arg", "numbr:int", stdin="1 + number", code=2)
    assert "not a type" in refused("save", "a/b", "-", "--arg", "number:word", stdin="number", code=2)


def test_code_that_can_not_run_is_refused():
    assert "foo is not defined" in refused("save", "a/b", "-", "--create", stdin="foo(1)")
    assert "line 1" in refused("save", "a/b", "-", "--create", stdin="1 +")
    assert "There is no bundle a" in refused("show", "a")


# add-curl


CURL = f"curl -H 'Authorization: Bearer {TOKEN}' 'https://api.weather.example/v1/now?city=Kyiv'"


def everything_below(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_curl_command_becomes_a_tool_and_its_key_a_secret(own_home):
    done = run("add-curl", "weather/now", CURL, "--create")
    tool = json.loads(done.stdout)
    assert tool["httpImpl"]["request"]["auth"] == {"type": "bearer", "value": "${WEATHER_TOKEN}"}
    assert tool["argSchema"]["properties"]["city"]["default"] == "Kyiv"
    assert TOKEN not in done.output
    assert "WEATHER_TOKEN" in done.stderr
    assert 'allowedHosts: ["api.weather.example"]' in done.stderr
    assert "onetool auth set" not in done.stderr  # it is kept already
    holding = [file for file, data in everything_below(own_home).items() if TOKEN.encode() in data]
    assert [file.name for file in holding] == ["secrets.yaml"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    assert did("show", "weather/now")["needs"]["secrets"] == [{"name": "WEATHER_TOKEN", "source": "file"}]


def test_a_secret_that_is_set_to_something_else_is_not_touched(own_home):
    did("add-curl", "weather/now", CURL, "--create")
    did("add-curl", "weather/same", CURL)
    other = did("add-curl", "weather/other", "-", stdin=CURL.replace(TOKEN, TOKEN + "-other"))
    assert other["httpImpl"]["request"]["auth"]["value"] == "${WEATHER_TOKEN_2}"
    kept = (own_home / ".onetool" / "secrets.yaml").read_text()
    bound = 'WEATHER_TOKEN%s: {"value": "%s", "hosts": ["api.weather.example"]}'
    assert kept.splitlines() == [bound % ("", TOKEN), bound % ("_2", f"{TOKEN}-other")]


@pytest.mark.attack("secrets")
@pytest.mark.parametrize("base", ["http://api.weather.example", "https://api.weather.example:8443"])
def test_a_secret_of_one_host_is_another_one_at_the_next(own_home, base):
    did("add-curl", "weather/now", CURL, "--create")
    other = did("add-curl", "weather/other", CURL.replace("https://api.weather.example", base))
    assert other["httpImpl"]["request"]["auth"]["value"] == "${WEATHER_TOKEN_2}"
    kept = (own_home / ".onetool" / "secrets.yaml").read_text().splitlines()
    binding = base.removeprefix("https://")
    assert kept[1] == f'WEATHER_TOKEN_2: {{"value": "{TOKEN}", "hosts": ["{binding}"]}}'


def test_no_secret_stays_behind_when_the_tool_is_refused(own_home):
    did("create", "weather")
    did("disable", "weather")
    refused("add-curl", "weather/now", CURL)
    drafted = did("add-curl", "weather/now", CURL, "--dry-run", "--description", "Now.")
    assert drafted["description"] == "Now."
    assert not any(TOKEN.encode() in data for data in everything_below(own_home).values())


def test_a_command_in_several_words_and_one_that_is_none():
    tool = did("add-curl", "a/b", "--create", "--", "curl", "-X", "POST", "https://x.example.org/a", "-d", "n=a b")
    assert tool["httpImpl"]["request"]["method"] == "POST"
    assert tool["argSchema"]["properties"]["n"]["default"] == "a b"
    assert "begin with curl" in refused("add-curl", "a/c", "wget https://x.example.org")
