"""Every snippet of docs/guide/write-a-pack.md is a file in examples/learn, and every file does what the page says."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from helpers import cli

ROOT = Path(__file__).parent.parent.parent
LEARN = ROOT / "examples" / "learn"
PAGE = (ROOT / "docs" / "guide" / "write-a-pack.md").read_text()


def test_every_snippet_is_a_file_and_every_file_a_snippet():
    snippets = set(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert snippets == {file.read_text() for file in LEARN.glob("*.py")}


def test_every_name_of_the_sdk_is_on_the_page():
    import onetool.sdk

    assert [name for name in onetool.sdk.__all__ if name not in PAGE] == []


@pytest.fixture
def service():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            known = self.headers.get("Authorization") == "Bearer k3y-k3y"
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"path": self.path, "sky": "clear"} if known else {"no": 1}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/today"
    server.shutdown()
    server.server_close()


@pytest.fixture
def call(tmp_path, service):
    config = f"packs: ['{LEARN}']\nsettings: {{weather: {{address: '{service}'}}}}\n"
    (tmp_path / "onetool.yaml").write_text(config)

    def invoke(name, _key="k3y-k3y", **args):
        env = {"WEATHER_KEY": _key}
        done = cli(
            "tools", "invoke", name, "--config", "onetool.yaml", "--args", json.dumps(args), cwd=tmp_path, env=env
        )
        return json.loads(done.stdout)["result"]

    return invoke


def test_hints(call):
    stops = [{"city": "Oslo", "nights": 2}, {"city": "Rome"}]
    assert call("trips.plan", start="2026-05-01", stops=stops, comfort="fine")["data"] == {
        "from": "2026-05-01",
        "nights": "3",
        "class": "FINE",
        "budget": "1000 EUR",
    }
    problems = call("trips.plan", start="2026-05-01", stops=[{}], currency="GBP", budget=0)["error"]["details"]
    assert {problem["path"] for problem in problems} == {"stops[0].city", "currency", "budget"}


def test_settings_secrets_and_requests(call):
    assert call("weather.today", city="Oslo")["data"] == {"path": "/today?city=Oslo", "sky": "clear"}
    failed = call("weather.today", _key="wrong-key", city="Oslo")["error"]
    assert failed["message"].startswith("HTTP error (401)")
    assert failed["reason"] == "source_unavailable"


def test_calling_others(call):
    text = call("reports.mornings", cities=["oslo", "rome"])["data"]
    assert text.index("Oslo") < text.index("Rome")
    assert "/today?city=rome" in text
    assert call("reports.lucky_city", cities=["oslo"])["data"] == "oslo"


def test_the_test_of_the_page():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_dice.py"]
    done = subprocess.run(command, cwd=LEARN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
