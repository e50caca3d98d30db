"""The examples do what they say, tried as an author would try a pack."""

import asyncio
import importlib.util
import json
import re
import shlex
import shutil
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers import cli
from upstream import Reply, Upstream

from onetool import App, ToolCall
from onetool.core.errors import ToolFailure
from onetool.sdk.testing import packs

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
CITIES = "city,t\nOslo,3\nRome,18\n"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / "packs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_data():
    with packs(load("data")) as tools:
        assert tools.call("data.extract", text="<b>x</b> and <b>y</b> <b>open", start="<b>", end="</b>") == ["x", "y"]
        assert tools.call("data.pick", text='{"items": [{"name": "a"}]}', path="items.0.name") == "a"
        assert tools.call("data.query_csv", text=CITIES, where={"city": "Rome"}) == [{"city": "Rome", "t": "18"}]
        assert tools.call("data.query_csv", text=CITIES, columns=["t"], limit=1) == [{"t": "3"}]
        assert json.loads(tools.call("data.convert", text=CITIES, source="csv", target="json"))[0]["city"] == "Oslo"
        assert tools.call("data.convert", text='[{"a": 1}]', source="json", target="csv") == "a\n1\n"
        assert tools.call("data.convert", text=CITIES, source="csv", target="table") == "city  t\nOslo  3\nRome  18"


def test_data_says_what_is_wrong():
    with packs(load("data")) as tools:
        error = tools.result("data.pick", text='{"items": []}', path="itms").error
        assert (error.message, error.hints) == ("nothing at 'itms' in 'itms'", ("here are: items",))
        assert "no column 'cty'" in tools.result("data.query_csv", text=CITIES, where={"cty": "x"}).error.message
        assert "line 1, column 2" in tools.result("data.pick", text="{", path="x").error.message
        assert tools.result("data.convert", text="x", source="xml", target="csv").error.code == "invalid_args"


@pytest.fixture
def index():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.strip("/")
            known = {"click": "8.1", "rich": "14.0"}
            body = json.dumps({"info": {"version": known.get(name)}} if name in known else {"message": "no such"})
            self.send_response(200 if name in known else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{{name}}"
    server.shutdown()
    server.server_close()


def test_versions(index):
    module = load("versions")
    with packs(module, settings={"versions": {"index": index}}) as tools:
        assert tools.call("versions.latest", name="click") == "8.1"
        with pytest.raises(ToolFailure, match=r"nothing: HTTP error \(404\)"):
            tools.call("versions.latest", name="nothing")
        many = tools.call("versions.latest_of_many", names=["rich", "nothing", "click"])
        assert list(many) == ["rich", "nothing", "click"]
        assert (many["rich"], many["click"]) == ("14.0", "8.1")
        assert "404" in str(many["nothing"])
    with packs(module) as tools:
        assert "versions.index" in tools.result("versions.latest", name="click").error.message
    module._client().close()


@pytest.fixture
def notes(tmp_path):
    connection = sqlite3.connect(tmp_path / "notes.db")
    connection.executescript("CREATE TABLE note (id INTEGER, text TEXT); INSERT INTO note VALUES (1, 'a'), (2, 'b');")
    connection.close()
    return tmp_path


def test_sqlite(notes):
    with packs(load("sqlite"), settings={"sqlite": {"folder": str(notes)}}) as tools:
        assert tools.call("sqlite.tables", database="notes.db") == [
            {"name": "note", "columns": ["id", "text"], "rows": 2}
        ]
        sql = "SELECT text FROM note WHERE id = :id"
        assert tools.call("sqlite.query", database="notes.db", sql=sql, values={"id": 2}) == [{"text": "b"}]
        assert len(tools.call("sqlite.query", database="notes.db", sql="SELECT * FROM note", limit=1)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM note",
        "UPDATE note SET text = 'x'",
        "DROP TABLE note",
        "ATTACH '/tmp/other.db' AS other",
        "PRAGMA query_only = OFF",
        "SELECT 1; DROP TABLE note",
        "nonsense",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    ],
)
def test_sqlite_only_reads_and_ends(notes, sql):
    with packs(load("sqlite"), settings={"sqlite": {"folder": str(notes)}}) as tools:
        assert tools.result("sqlite.query", database="notes.db", sql=sql).error.message.startswith("SQLite: ")
        assert tools.call("sqlite.tables", database="notes.db")[0]["rows"] == 2


def test_sqlite_stays_in_its_folder(notes):
    with packs(load("sqlite"), settings={"sqlite": {"folder": str(notes / "sub")}}) as tools:
        assert tools.result("sqlite.query", database="../notes.db", sql="SELECT 1").error.reason == "denied"
        assert tools.result("sqlite.query", database="none.db", sql="SELECT 1").error.reason == "not_found"


def test_the_config_of_the_examples_works(tmp_path):
    sqlite3.connect(tmp_path / "notes.db").close()
    done = cli("--config", str(EXAMPLES / "onetool.yaml"), "check", cwd=tmp_path, env={"ONETOOL_HOME": str(tmp_path)})
    assert [told for told in json.loads(done.stdout) if told["severity"] == "error"] == []
    listed = cli("--config", str(EXAMPLES / "onetool.yaml"), "tools", "list", cwd=tmp_path)
    names = {tool["name"] for tool in json.loads(listed.stdout)}
    assert {"data.pick", "versions.latest", "sqlite.query"} <= names


def test_a_bundle_written_by_hand(tmp_path):
    warm = {"Rome": 18.5, "Oslo": 3}

    def answer(seen):
        query = parse_qs(urlsplit(seen.target).query)
        if seen.target.startswith("/v1/search"):
            (name,) = query["name"]
            found = {"results": [{"name": name, "country": "X", "latitude": warm[name], "longitude": 1, "id": 7}]}
        else:
            found = {"current": {"temperature_2m": float(query["latitude"][0])}}
        return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(found).encode())

    with Upstream(answer) as upstream:
        shutil.copytree(EXAMPLES / "weather" / "bundles", tmp_path / "bundles", ignore=shutil.ignore_patterns(".state"))
        for file in tmp_path.glob("bundles/weather/tools/*.json"):
            file.write_text(re.sub(r"https://[a-z-]+\.open-meteo\.com", upstream.url, file.read_text()))
        hosts = [{"host": upstream.netloc, "allowPrivate": True}]
        (tmp_path / "onetool.yaml").write_text(json.dumps({"allowedHosts": hosts}))
        with App.open(tmp_path / "onetool.yaml") as app:
            assert app.mistakes == ()
            result = asyncio.run(app.call(ToolCall("1", "weather.warmest", {"towns": ["Oslo", "Rome"]})))
    assert result.data == {"town": "Rome", "celsius": 18.5}
    assert upstream.seen[0].target == "/v1/search?name=Oslo&count=1"


def test_the_commands_of_the_readme_work_as_written(tmp_path):
    """Without those that need the internet, or a server that stays: other tests have these examples."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    blocks = re.findall(r"```sh\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if not re.search("weather|8000", line)]
    *commands, uvicorn = [shlex.split(command, comments=True) for command in commands]
    assert [command[0] for command in commands] == [*["onetool"] * 2, "touch", *["onetool"] * 3]
    for program, *args in commands:
        if program == "touch":
            (tmp_path / "examples" / args[0]).touch()
            continue
        done = cli(*args, cwd=tmp_path / "examples", env={"ONETOOL_HOME": str(tmp_path / "home")})
        assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "examples" / uvicorn[uvicorn.index("--app-dir") + 1]
    assert (folder / f"{uvicorn[-1].partition(':')[0]}.py").is_file()
