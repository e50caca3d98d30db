"""The command line as its users run it: in a process of its own, piped and on a real terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from helpers import BUILT_IN_PACKS, cli, definition, invoke, start, trusted
from sources.mcp_servers.harness import block_of


def on_a_terminal(*args, cwd, rows=40, columns=100):
    """Run the command line with a pseudo-terminal as its standard output; gives (exit code, what was shown)."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    process = start(*args, cwd=cwd, stdout=follower, stderr=follower, stdin=follower, env=env)
    os.close(follower)
    shown, deadline = b"", time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            with suppress(OSError):
                if chunk := os.read(leader, 65536):
                    shown += chunk
                    continue
            break
    os.close(leader)
    return process.wait(10), shown.decode()


@pytest.fixture
def configured(tmp_path):
    """A folder with a config: two good tools, one bad one."""
    folder = tmp_path / "project"
    (folder / ".onetool").mkdir(parents=True)
    tools = [
        definition("weather", description="Says [bold]what[/bold] the \x1b[31mweather is like."),
        definition("broken", parameters={"type": "array"}),
        definition("login", parameters={"type": "object", "properties": {"api_key": {"type": "string"}}}),
    ]
    (folder / ".onetool" / "onetool.yaml").write_text(json.dumps({"tools": tools}))
    return trusted(folder)


# Asking for little costs little


HEAVY = {
    "asyncio",
    "docstring_parser",
    "rich",
    "yaml",
    "jsonschema_rs",
    "pydantic",
    "httpx",
    "rapidfuzz",
    "sqlite3",
    "http",
    "email",
    "ssl",
}


COMMAND = """
sys.argv = ["onetool", *{args!r}]
import onetool.__main__ as command
try:
    command.main()
except SystemExit:
    pass
"""
LISTED = COMMAND.format(args=["tools", "list"])


def all_modules_after(code, tmp_path):
    """Told in a file: a command may have claimed standard output."""
    told = tmp_path / "modules"
    script = f"import sys\n{code}\nwith open({str(told)!r}, 'w') as file: print(*sys.modules, file=file)"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=True)
    return set(told.read_text().split())


def modules_after(code, tmp_path):
    return {name.partition(".")[0] for name in all_modules_after(code, tmp_path)}


def test_importing_onetool_imports_nothing_else(tmp_path):
    extra = modules_after("import onetool", tmp_path) - modules_after("pass", tmp_path)
    assert extra - {"typing", "collections", "functools", "re", "contextlib", "operator", "keyword"} <= {
        "onetool"
    } | set(sys.stdlib_module_names)
    assert not extra & (HEAVY | {"click", "msgspec", "orjson"})


def test_version_imports_no_framework(tmp_path):
    loaded = modules_after("sys.argv = ['onetool', '--version']; import onetool.__main__ as m; m.main()", tmp_path)
    assert not loaded & (HEAVY | {"click", "msgspec", "orjson"})


def test_tools_list_imports_no_framework(tmp_path):
    assert not modules_after(LISTED, tmp_path) & (HEAVY | {"typing_extensions"})


def test_tools_list_imports_of_ours_what_it_needs(tmp_path):
    loaded = all_modules_after(LISTED, tmp_path)
    others = {"core.executor", "core.flock", "core.schema", "sdk.context", "services.results", "sources.packs.reading"}
    assert not loaded & {f"onetool.{name}" for name in others}
    assert len([name for name in loaded if name.partition(".")[0] == "onetool"]) <= 82


def test_numpy_is_loaded_by_a_search_only(tmp_path):
    for args in (["--version"], ["tools", "list"], ["tools", "info", "time.now"], ["run", "1+1"]):
        assert "numpy" not in modules_after(COMMAND.format(args=args), tmp_path), args
    assert "numpy" in modules_after(COMMAND.format(args=["tools", "search", "which hour is it"]), tmp_path)


def test_ruamel_is_loaded_by_an_edit_of_the_config_only(tmp_path):
    for args in (["tools", "list"], ["check"], ["servers", "list"], ["hosts", "list"], ["run", "1+1"]):
        assert "ruamel" not in modules_after(COMMAND.format(args=args), tmp_path), args
    (tmp_path / "mine.yaml").write_text("menu: run\n")
    edit = ["hosts", "allow", "api.example.com", "--config", "mine.yaml"]
    assert "ruamel" in modules_after(COMMAND.format(args=edit), tmp_path)


def test_typing_extensions_can_be_imported_after_a_command_without_it(tmp_path):
    code = """
import msgspec
from typing_extensions import NotRequired, TypedDict
class Point(TypedDict):
    x: int
    y: NotRequired[int]
assert msgspec.convert({"x": 1}, Point) == {"x": 1}
"""
    assert "typing_extensions" in modules_after(LISTED + code, tmp_path)


def test_version(tmp_path):
    import onetool

    for args in (["--version"], ["--config", "x", "--version"]):
        done = invoke(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"onetool {onetool.__version__}\n")


# Piped: JSON and nothing else


def test_every_command_that_prints_data_prints_json_when_piped(configured):
    commands = (
        ["tools", "list"],
        ["tools", "info", "weather"],
        ["tools", "invoke", "weather"],
        ["tools", "search", "weather"],
        ["tools", "export", "--provider", "openai"],
        ["check"],
    )
    for command in commands:
        for extra in ([], ["--json"]):
            json.loads(invoke(*command, *extra, cwd=configured).stdout)


def test_lists_are_bare_arrays(configured):
    for command in (["tools", "list"], ["tools", "search", "x"], ["tools", "export", "--provider", "mcp"], ["check"]):
        assert isinstance(json.loads(invoke(*command, cwd=configured).stdout), list)


def test_json_on_a_terminal_when_asked_for(configured):
    code, shown = on_a_terminal("tools", "list", "--json", cwd=configured)
    assert code == 0
    start = shown.index("[\r\n")
    assert "login" in [tool["name"] for tool in json.loads(shown[start:])]


def test_your_own_tools_are_listed_first(configured):
    (configured / ".onetool" / "packs").mkdir(exist_ok=True)
    (configured / ".onetool" / "packs" / "dice.py").write_text("def roll() -> int:\n    'Roll.'\n    return 4\n")
    invoke("trust", "--yes", cwd=configured)
    names = [tool["name"] for tool in json.loads(invoke("tools", "list", cwd=configured).stdout)]
    first = next(place for place, name in enumerate(names) if name.partition(".")[0] in BUILT_IN_PACKS)
    assert {"dice.roll", "weather", "login"} <= set(names[:first])
    assert {name.partition(".")[0] for name in names[first:]} == BUILT_IN_PACKS
    chosen = invoke("tools", "list", "--tool-allow", "login,time.now", cwd=configured)
    assert [tool["name"] for tool in json.loads(chosen.stdout)] == ["time.now", "login"]


def test_descriptions_in_a_table_are_whole_sentences(tmp_path):
    text = "def roll() -> int:\n    'Roll a die, which has as many sides\\n    as dice have. Not more.'\n    return 4\n"
    (tmp_path / "dice.py").write_text(text)
    (tmp_path / "onetool.yaml").write_text("packs: [dice.py]\n")
    for command in (["list"], ["search", "roll"]):
        _, shown = on_a_terminal("tools", *command, "--config", "onetool.yaml", cwd=tmp_path)
        assert "Roll a die, which has as many sides as dice have." in " ".join(shown.split())


def test_hints_are_commands_not_python(tmp_path):
    for args, hint in ((["tools.echo"], "onetool tools info tools.echo"), (["fs.list_dir", "path=nowhere"], "")):
        code, shown = on_a_terminal("tools", "invoke", *args, cwd=tmp_path)
        assert code == 1
        assert hint in shown
        assert "tools.echo(" not in shown
        assert "fs.list_dir(" not in shown


# On a terminal: tables and colour


def test_a_table_on_a_terminal(configured):
    code, shown = on_a_terminal("tools", "list", cwd=configured)
    assert code == 0
    assert "\x1b[" in shown
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "description" in text
    assert "fs.read_file" in text
    assert "ot.search" not in text
    assert text.index("weather") < text.index("time.now") < text.index("18 tools for code and models")
    assert "ot.search" in on_a_terminal("tools", "list", "--tool-allow", "ot.*", cwd=configured)[1]
    assert "Says [bold]what[/bold] the �[31mweather is like." in text  # shown, not obeyed


def test_the_table_shows_how_code_calls_a_tool_with_another_name(tmp_path):
    tool = {
        "description": "d",
        "type": "function",
        "handler": "h",
        "parameters": {"type": "object", "properties": {}},
        "implementation": {"type": "mock", "mock_response": 1},
    }
    tools = [{"name": name, **tool} for name in ("filter", "open")]
    (tmp_path / "onetool.yaml").write_text(json.dumps({"tools": tools}))
    _, shown = on_a_terminal("tools", "list", "--config", "onetool.yaml", cwd=tmp_path)
    assert "filter_()" in shown
    assert "open()" not in shown


def test_highlighted_json_on_a_terminal(configured):
    code, shown = on_a_terminal("tools", "invoke", "--envelope", "weather", cwd=configured)
    assert code == 0
    assert re.search(r'\x1b\[[0-9;]*m"result"', shown)


def test_info_search_and_check_on_a_terminal(configured):
    for args, expected in (
        (["tools", "info", "fs.read_file"], "last_called"),
        (["tools", "search", "file"], "fs.read_file"),
        (["check"], "parameters.type"),
    ):
        _, shown = on_a_terminal(*args, cwd=configured)
        assert expected in shown


# invoke


def test_on_a_terminal_the_value_is_printed(tmp_path):
    code, shown = on_a_terminal("tools", "invoke", "tools.echo", 'message={"a": [1, "two"]}', cwd=tmp_path)
    assert (code, shown.strip().splitlines()[-1]) == (0, "{a: [1, two]}")
    code, shown = on_a_terminal("tools", "invoke", "fs.read_file", "path=nothing", cwd=tmp_path)
    assert code == 1
    assert "Error:" in shown
    assert '"result"' not in shown


ARGUMENTS = """
def given(word: str, count: int = 0, maybe: str | None = None, either: int | str = 0, more: dict | None = None) -> list:
    return [word, count, maybe, either, more]
"""


def given(folder, *args):
    (folder / "take.py").write_text(ARGUMENTS)
    (folder / "onetool.yaml").write_text("packs: [take.py]\n")
    return invoke("--config", "onetool.yaml", "tools", "invoke", "take.given", *args, cwd=folder)


@pytest.mark.parametrize(
    ("pairs", "data"),
    [
        (["word=x", "count=3"], ["x", 3, None, 0, None]),
        (["word=3", "maybe=null", "either=3"], ["3", 0, "null", 3, None]),
        (["word=a=b", "either=three"], ["a=b", 0, None, "three", None]),
        (["word=", 'more={"a": [1]}'], ["", 0, None, 0, {"a": [1]}]),
    ],
)
def test_arguments_as_pairs_are_texts_where_the_schema_says_so_else_json(tmp_path, pairs, data):
    done = given(tmp_path, *pairs)
    whole = json.loads(done.stdout)
    assert whole.keys() == {"call", "result"}
    assert (done.returncode, whole["result"]["data"]) == (0, data)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["wrod=x"], "did you mean word?\n"),
        (["word=x", "word=y"], "twice"),
        (["word"], "KEY=VALUE"),
        (["=x"], "KEY=VALUE"),
        (["word=x", "count=three"], "count: expected a whole number, got 'three'.\n"),
        (
            ["word=x", "more={a: 1}"],
            "more: expected an object or null, got '{a: 1}', which is not JSON (Expecting prop",
        ),
        (["word=x", "count=NaN"], "NaN"),
        (["word=x", "--args", "{}"], "not both"),
        (["--args", '{"word": "x"}', "count=1"], "not both"),
    ],
)
def test_wrong_pairs_are_wrong_usage(tmp_path, args, told):
    done = given(tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_the_envelope_of_a_failed_call_is_printed_too(tmp_path):
    done = invoke("tools", "invoke", "--envelope", "nothing", "a=1", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["result"]["error"]["code"]) == (1, "tool_not_found")


@pytest.mark.parametrize("how", ["option", "stdin", "file"])
def test_arguments_from_everywhere(tmp_path, how):
    text = '{"message": [1, "two", null]}'
    (tmp_path / "args.json").write_text(text)
    args, stdin = {"option": (text, None), "stdin": ("-", text), "file": ("@args.json", None)}[how]
    done = invoke("tools", "invoke", "tools.echo", "--args", args, cwd=tmp_path, stdin=stdin)
    assert json.loads(done.stdout)["result"]["data"] == [1, "two", None]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ('{"a" 1}', "line 1, column 6"),
        ('{"a": 1,\n "b": }', "line 2, column 7"),
        ("", "line 1, column 1"),
        ('{"a":\n', "line 2, column 1"),
        ('{"message": %s}' % ("1" * 5000), "can't be read"),
        ("[1]", "not an object"),
        ("null", "not an object"),
        ("@missing.json", "No such file"),
        ("[" * 100_000, "nested too deep"),
        ('{"message": NaN}', "NaN"),
        ('{"message": 1e999}', "too large"),
        ('{"message": 1, "message": 2}', "twice"),
    ],
    ids=lambda text: text[:12],
)
def test_bad_arguments_say_what_and_where(tmp_path, args, told):
    done = invoke("tools", "invoke", "tools.echo", "--args", args, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_arguments_that_are_not_utf8(tmp_path):
    (tmp_path / "args.json").write_bytes(b'{"message": "\xff"}')
    done = invoke("tools", "invoke", "tools.echo", "--args", "@args.json", cwd=tmp_path)
    assert (done.returncode, "not UTF-8" in done.stderr) == (2, True)


def test_odd_values_are_printed_as_json(tmp_path):
    for value in ('"\\ud800"', "123456789012345678901234567890", '{"": {"\\u0000": []}}'):
        done = invoke("tools", "invoke", "tools.echo", "--args", f'{{"message": {value}}}', cwd=tmp_path)
        printed = json.loads(done.stdout)
        assert done.returncode == (0 if printed["result"]["ok"] else 1)
        assert "Traceback" not in done.stderr


def test_a_time_out_ends_the_command(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef wait():\n    time.sleep(600)\n")
    (tmp_path / "onetool.yaml").write_text("packs: [slow.py]\n")
    done = invoke("--config", "onetool.yaml", "tools", "invoke", "slow.wait", "--timeout", "0.2", cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["error"]["reason"] == "timeout"
    assert done.returncode == 1


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.sleep(600)",
        "\n    ".join(["while True:", "    try: await asyncio.sleep(0.1)", "    except BaseException: pass"]),
    ],
    ids=["heeds", "ignores"],
)
def test_an_async_tool_that_hangs_ends_the_command_too(tmp_path, body):
    (tmp_path / "slow.py").write_text(f"import asyncio\nasync def wait():\n    {body}\n")
    (tmp_path / "onetool.yaml").write_text("packs: [slow.py]\n")
    # In a process of its own, because a coroutine that ignores its end never leaves this one.
    done = cli("--config", "onetool.yaml", "tools", "invoke", "slow.wait", "--timeout", "0.2", cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["error"]["reason"] == "timeout"
    assert "destroyed" not in done.stderr


@pytest.mark.parametrize(("redirect", "told"), [("> /dev/full", "No space left"), (">&-", "")])
def test_an_output_that_cannot_be_written(tmp_path, redirect, told):
    if "full" in redirect and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    shell = f"{sys.executable} -m onetool tools list {redirect}"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug in OneTool" not in done.stderr


def test_a_working_folder_that_is_gone(tmp_path):
    shell = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m onetool tools invoke shell.pwd"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "bug in OneTool" not in done.stderr


def test_the_allow_list_holds_for_search_and_export(tmp_path):
    found = invoke("tools", "search", "folder", "--tool-allow", "fs.list_dir", cwd=tmp_path)
    assert [tool["name"] for tool in json.loads(found.stdout)] == ["fs.list_dir"]
    exported = invoke(
        "tools", "export", "--provider", "gemini", "--merge", "--tool-allow", "time.now,shell.pwd", cwd=tmp_path
    )
    (merged,) = json.loads(exported.stdout)
    assert [one["name"] for one in merged["functionDeclarations"]] == ["time__now", "shell__pwd"]


def test_a_search_prints_no_scores_which_do_not_fall_with_the_rank(tmp_path):
    found = json.loads(invoke("tools", "search", "list folder contents", "--limit", "12", cwd=tmp_path).stdout)
    assert found[0]["name"] == "fs.list_dir"
    assert not any("score" in tool for tool in found)


def test_the_exported_name_does_not_depend_on_the_allow_list(tmp_path):
    tools = [definition("a.b"), definition("a__b")]
    (tmp_path / "onetool.yaml").write_text(json.dumps({"tools": tools}))
    base = ["--config", "onetool.yaml", "tools", "export", "--provider", "openai"]
    everything = json.loads(invoke(*base, cwd=tmp_path).stdout)
    one = json.loads(invoke(*base, "--tool-allow", "a.b", cwd=tmp_path).stdout)
    assert one == [tool for tool in everything if tool["function"]["name"].startswith("a__b_")]


def test_ctrl_c_ends_the_command_without_a_traceback(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef wait():\n    print('begun', flush=True)\n    time.sleep(60)\n")
    (tmp_path / "onetool.yaml").write_text("packs: [slow.py]\n")
    command = [sys.executable, "-m", "onetool", "--config", "onetool.yaml", "tools", "invoke", "slow.wait"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_ctrl_c_while_a_pack_is_imported_ends_the_command(tmp_path):
    code = "import sys, time, functools\nprint('begun', flush=True)\ntime.sleep(60)\n@functools.cache\ndef f(): 'F.'\n"
    (tmp_path / "slow.py").write_text(code)
    (tmp_path / "onetool.yaml").write_text("packs: [slow.py]\n")
    process = start(
        "--config",
        "onetool.yaml",
        "tools",
        "list",
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=8)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_what_a_tool_prints_is_not_on_standard_output(tmp_path):
    code = """
import os
print("at import")
def talk():
    print("by print")
    os.system("echo by a child")
    return 1
"""
    (tmp_path / "chatty.py").write_text(code)
    (tmp_path / "onetool.yaml").write_text("packs: [chatty.py]\n")
    done = cli("--config", "onetool.yaml", "tools", "invoke", "chatty.talk", cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["data"] == 1
    for said in ("at import", "by print", "by a child"):
        assert said in done.stderr


def test_what_a_tool_prints_after_its_deadline_is_not_there_either(tmp_path):
    code = """
import time
def talk():
    for _ in range(30):
        print("noise", flush=True)
        time.sleep(0.05)
"""
    (tmp_path / "late.py").write_text(code)
    (tmp_path / "onetool.yaml").write_text("packs: [late.py]\n")
    done = cli("--config", "onetool.yaml", "tools", "invoke", "late.talk", "--timeout", "0.2", cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["error"]["reason"] == "timeout"


def test_an_output_that_has_few_characters(tmp_path):
    done = cli(
        "tools", "invoke", "tools.echo", "--args", '{"message": "☃"}', cwd=tmp_path, env={"PYTHONIOENCODING": "latin-1"}
    )
    assert json.loads(done.stdout)["result"]["data"] == "☃"


def test_a_number_of_many_digits_is_printed(tmp_path):
    (tmp_path / "big.py").write_text("def number():\n    return 10**5000\n")
    (tmp_path / "onetool.yaml").write_text("packs: [big.py]\n")
    done = invoke("--config", "onetool.yaml", "tools", "invoke", "big.number", cwd=tmp_path)
    assert "0" * 5000 in done.stdout


def test_a_closed_pipe_is_no_error(configured):
    shell = f"{sys.executable} -m onetool tools list | head -c 10"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=configured, capture_output=True, text=True, check=False, timeout=30
    )
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr.replace("error", "")


def test_secret_arguments_are_not_shown_nor_logged(configured):
    args = ["tools", "invoke", "login", "--args", '{"api_key": "hunter2"}']
    done = invoke("-v", *args, cwd=configured)
    assert done.returncode == 0
    assert "hunter2" not in done.stdout + done.stderr
    spans = [json.loads(line) for line in done.stderr.splitlines() if '"span"' in line]
    assert [(span["span"], span["ok"], span["call_args"]) for span in spans] == [("login", True, {"api_key": "***"})]


def test_every_outcome_is_one_structured_event(tmp_path):
    for name, args, code in (
        ("time.now", "{}", None),
        ("time.now", '{"x": 1}', "invalid_args"),
        ("no.such", "{}", "tool_not_found"),
        ("fs.read_file", '{"path": "none"}', "execution_error"),
    ):
        done = invoke("tools", "invoke", name, "--args", args, cwd=tmp_path, env={"ONETOOL_LOG": "info"})
        (event,) = [json.loads(line) for line in done.stderr.splitlines()]
        assert (event["span"], event["ok"], event.get("code")) == (name, code is None, code)
        assert event["duration_ms"] >= 0


# Wrong usage


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["tolls"], "Did you mean 'tools'?"),
        (["tools", "lst"], "Did you mean 'list'?"),
        (["invoke", "x", "a=b c"], "No such command 'invoke'. Did you mean: onetool tools invoke x 'a=b c'"),
        (["ask", "--with-tools=maybe", "q"], "'--with-tools': expected true or false, got 'maybe'."),
        (["tools", "info", "time.nwo"], "did you mean time.now?"),
        (["tools", "export", "--provider", "opnai"], "Did you mean openai?"),
        (["tools", "invoke"], "NAME"),
        (["tools", "list", "--tool-allow", " , "], "empty"),
        (["tools", "invoke", "time.now", "--timeout", "0"], "--timeout"),
        (["tools", "invoke", "time.now", "--timeout", "nan"], "--timeout"),
        (["tools", "export", "--provider", "openai", "--merge"], "gemini"),
        (["init", "no/such/folder"], "does not exist"),
        (["--config", "missing.yaml", "tools", "list"], "onetool init"),
    ],
    ids=str,
)
def test_wrong_usage_says_what_to_do(tmp_path, args, told):
    done = invoke(*args, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_bad_log_level_is_told(tmp_path):
    done = invoke("tools", "list", cwd=tmp_path, env={"ONETOOL_LOG": "loud"})
    assert (done.returncode, "debug, info" in done.stderr) == (2, True)


# The config


def test_bad_tools_do_not_stop_the_start_and_are_told(configured):
    done = invoke("tools", "list", cwd=configured)
    assert done.returncode == 0
    assert [tool["name"] for tool in json.loads(done.stdout)][:2] == ["weather", "login"]
    (event,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert event["level"] == "error"
    assert "broken" in event["message"]
    assert "onetool.yaml:1" in event["message"]


def test_warnings_about_the_config_are_printed_once_after_each_change(tmp_path):
    config = tmp_path / "onetool.yaml"
    config.write_text("servers: {off: {command: none, enabled: false, colour: blue}}\n")
    missing = ("--config", "onetool.yaml", "tools", "info", "no.such")
    first, second = (invoke(*missing, cwd=tmp_path).stderr.splitlines() for _ in range(2))
    assert first[0].endswith("onetool.yaml:1: servers.off.colour: unknown key 'colour'; it is ignored")
    assert first[1].endswith("to see them in full: onetool check")
    assert first[2:] == second
    assert len(second) == 1
    config.write_text(f"# a comment\n{config.read_text()}")
    assert "onetool.yaml:2" in invoke(*missing, cwd=tmp_path).stderr
    assert invoke(*missing, cwd=tmp_path).stderr.splitlines() == second
    for _ in range(2):
        assert "known keys: type, command" in invoke("check", "--config", "onetool.yaml", cwd=tmp_path).stdout
        served = cli("--config", "onetool.yaml", "mcp", stdin="", cwd=tmp_path)
        assert "known keys: type, command" in json.loads(served.stderr.splitlines()[0])["message"]


def test_warnings_about_servers_are_not_printed_by_every_command(tmp_path):
    block = block_of("offers", env={"PIDS": str(tmp_path / "pids")})
    (tmp_path / "onetool.yaml").write_text(json.dumps({"servers": {"one": block, "two": block}}))
    listed = cli("--config", "onetool.yaml", "servers", "list", cwd=tmp_path)
    assert all("notes://today" in one["warning"] for one in json.loads(listed.stdout))
    assert "{" not in listed.stderr
    printed = [cli("--config", "onetool.yaml", "run", "one.one()\nnosuch()", cwd=tmp_path).stderr for _ in range(3)]
    assert printed[1:] == ["Error: line 2: nosuch is not defined\n"] * 2
    assert not printed[0].startswith("{")


def test_a_warning_about_a_bundle_is_printed_once(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}")
    assert invoke("--config", "onetool.yaml", "bundles", "create", "mine", cwd=tmp_path).returncode == 0
    (tmp_path / "mine.py").write_text("def one() -> int:\n    return 1\n")
    (tmp_path / "onetool.yaml").write_text("packs: [mine.py]")
    first, second = (invoke("--config", "onetool.yaml", "run", "nosuch()", cwd=tmp_path).stderr for _ in range(2))
    assert "the bundle 'mine'" in first
    assert not first.startswith("{")
    assert second == "Error: line 1: nosuch is not defined\n"


def test_check_lists_every_mistake(configured):
    done = invoke("check", cwd=configured)
    assert done.returncode == 1
    (mistake,) = json.loads(done.stdout)
    assert mistake["key"] == "tools[1] (broken)"
    assert mistake["line"] == 1
    assert done.stderr == ""


def test_check_knows_the_keys_of_ask(tmp_path):
    (tmp_path / "asks.yaml").write_text("ask: {max_steps: 3}\n")
    done = invoke("check", "--config", "asks.yaml", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_check_tells_what_tools_need(tmp_path):
    (tmp_path / "needy.py").write_text("""
from onetool.sdk import requires_cli, requires_lib
@requires_cli("no-such-command-anywhere", install="apt install it")
@requires_lib("msgspec")
def work():
    'Work.'
""")
    (tmp_path / "onetool.yaml").write_text("packs: [needy.py]\n")
    done = invoke("check", "--config", "onetool.yaml", cwd=tmp_path)
    (told,) = json.loads(done.stdout)
    assert (told["key"], told["severity"], told["hint"]) == ("needy.work", "warning", "apt install it")
    assert "no-such-command-anywhere" in told["message"]
    _, shown = on_a_terminal("check", "--config", "onetool.yaml", cwd=tmp_path)
    assert "msgspec" in shown
    assert "missing" in shown


def test_packs_are_found_without_a_config(tmp_path):
    (tmp_path / ".onetool" / "packs").mkdir(parents=True)
    (tmp_path / ".onetool" / "packs" / "dice.py").write_text('def roll() -> int:\n    """Roll."""\n    return 4\n')
    (tmp_path / "below").mkdir()
    trusted(tmp_path)
    assert json.loads(invoke("tools", "invoke", "dice.roll", cwd=tmp_path / "below").stdout)["result"]["data"] == 4


def test_the_secrets_file_is_out_of_reach_of_tools(tmp_path):
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "onetool.yaml").write_text("secrets: secrets.yaml\n")
    (tmp_path / ".onetool" / "secrets.yaml").write_text("KEY: hunter2-hunter2\n")
    (tmp_path / ".onetool" / "secrets.yaml").chmod(0o600)
    trusted(tmp_path)
    (tmp_path / "link").symlink_to(".onetool/secrets.yaml")
    os.link(tmp_path / ".onetool" / "secrets.yaml", tmp_path / "hard")
    for path in (".onetool/secrets.yaml", "link", "hard"):
        done = invoke("tools", "invoke", "fs.read_file", "--args", json.dumps({"path": path}), cwd=tmp_path)
        assert json.loads(done.stdout)["result"]["error"]["reason"] == "denied"
        assert "hunter2" not in done.stdout


def test_a_secret_is_masked_wherever_it_turns_up(tmp_path):
    (tmp_path / "onetool.yaml").write_text("secrets: {KEY: hunter2-hunter2}\n")
    (tmp_path / "note.txt").write_text("the key is hunter2-hunter2")
    base = ["--config", "onetool.yaml", "-vv", "tools", "invoke"]
    read = invoke(*base, "fs.read_file", "--args", '{"path": "note.txt"}', cwd=tmp_path)
    assert json.loads(read.stdout)["result"]["data"] == "the key is ***"
    echo = invoke(*base, "tools.echo", "--args", '{"message": {"deep": ["hunter2-hunter2"]}}', cwd=tmp_path)
    gone = invoke(*base, "fs.read_file", "--args", '{"path": "hunter2-hunter2"}', cwd=tmp_path)
    assert "hunter2" not in read.stdout + read.stderr
    for done in (echo, gone):  # who sent it gets it back; the log does not
        assert "hunter2" in done.stdout
        assert "hunter2" not in done.stderr


def test_packs_beside_the_config_are_found(configured):
    (configured / ".onetool" / "packs").mkdir()
    (configured / ".onetool" / "packs" / "dice.py").write_text('def roll() -> int:\n    """Roll."""\n    return 4\n')
    (configured / ".onetool" / "packs" / "bad.py").write_text("x = 1\nimport nonexistent_module\n")
    done = invoke("tools", "invoke", "dice.roll", cwd=configured)
    assert json.loads(done.stdout)["result"]["data"] == 4
    assert "bad.py:2" in done.stderr
    assert "nonexistent_module" in done.stderr


def test_an_unusable_config_is_told_in_full(tmp_path):
    (tmp_path / "bad.yaml").write_text("mnu: run\nhttp: {port: many}\n")
    done = invoke("--config", "bad.yaml", "tools", "list", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean menu" in done.stderr
    assert "http.port" in done.stderr
    assert "bad.yaml:2" in done.stderr
    checked = invoke("check", "--config", "bad.yaml", cwd=tmp_path)
    assert (checked.returncode, len(json.loads(checked.stdout))) == (1, 2)


def test_the_config_is_found_in_a_parent_folder(configured):
    below = configured / "a" / "b"
    below.mkdir(parents=True)
    assert "weather" in invoke("tools", "list", cwd=below).stdout


def test_init_writes_a_config_that_works(tmp_path):
    done = invoke("init", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Wrote .onetool/onetool.yaml, the config of this folder and of those below it.\n")
    assert (tmp_path / ".onetool" / "onetool.yaml").exists()
    assert {"secrets.yaml", "results/", "sessions/"} < {*(tmp_path / ".onetool" / ".gitignore").read_text().split()}
    assert json.loads(invoke("check", cwd=tmp_path).stdout) == []
    assert len(json.loads(invoke("tools", "list", cwd=tmp_path).stdout)) > 5
    again = invoke("init", cwd=tmp_path)
    assert (again.returncode, "--force" in again.stderr) == (1, True)
    assert invoke("init", "--force", cwd=tmp_path).returncode == 0


def test_state_lives_beside_the_config_in_force(configured, tmp_path):
    invoke("tools", "invoke", "weather", cwd=configured)
    assert (configured / ".onetool" / "state.db").exists()
    invoke("tools", "invoke", "weather", cwd=configured, env={"ONETOOL_HOME": str(tmp_path / "moved")})
    assert (tmp_path / "moved" / "state.db").exists()


def test_a_state_folder_that_cannot_be_written_fails_no_call(configured):
    done = invoke("tools", "invoke", "weather", cwd=configured, env={"ONETOOL_HOME": "/proc/nowhere"})
    assert done.returncode == 0
    assert "lost 1 events of the journal" in done.stderr


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(tmp_path, shell):
    assert "_ONETOOL_COMPLETE" in invoke("completion", shell, cwd=tmp_path).stdout


def test_completion_knows_commands_and_tools(configured):
    for words, expected in (
        ("onetool to", "tools"),
        ("onetool tools invoke fs.", "fs.read_file"),
        ("onetool tools info wea", "weather"),
    ):
        env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        assert expected in invoke(cwd=configured, env=env).stdout


def test_help_shows_every_command_without_loading_it(tmp_path):
    from click import Context

    from onetool.interfaces.cli import cli as root

    shown = invoke("--help", cwd=tmp_path).stdout
    assert next(iter(root.commands_in)) == "run"
    assert all(text.endswith(".") for _, text in root.commands_in.values())
    for name, (_, text) in root.commands_in.items():
        assert root.get_command(Context(root), name).get_short_help_str(limit=500).startswith(text.rstrip("."))
        assert f"  {name:10}  {text[:30]}" in shown
    loaded = all_modules_after(COMMAND.format(args=["--help"]), tmp_path)
    assert not loaded & {
        f"onetool.interfaces.cli{place.partition(':')[0]}" for place, _ in root.commands_in.values()
    } - {"onetool.interfaces.cli"}


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")])
def test_who_wants_no_colours_gets_none(monkeypatch, name, value):
    import io

    from onetool.core.call import ToolError
    from onetool.interfaces.cli import output
    from onetool.interfaces.cli.run import print_error

    errors, shown = io.StringIO(), io.StringIO()
    errors.isatty = shown.isatty = lambda: True
    monkeypatch.delenv("NO_COLOR", raising=False)
    for key, text in {"TERM": "xterm-256color", name: value}.items():
        monkeypatch.setenv(key, text)
    monkeypatch.setattr(output, "stdout", lambda: shown)
    monkeypatch.setattr("sys.stderr", errors)
    output.echo(output.styled("bold", bold=True))
    output.print_table("t", ["name"], [["a"]])
    output.print_json({"a": 1}, as_json=False)
    print_error(ToolError(code="execution_error", message="no"))
    for stream in (errors, shown):
        assert ("\x1b" in stream.getvalue()) == (not value)


HOME_COMMANDS = (
    "check, db, db init, db export out, tokens list, tokens add ci, tools list, run 1+1, audit, stats, sessions list, "
    "servers list, servers add x --url http://127.0.0.1:1/mcp, bundles list, auth list, auth set KEY, hosts list, mcp, "
    "serve --port 0"
)


@pytest.mark.parametrize("command", HOME_COMMANDS.split(", "))
def test_a_home_that_is_a_file_is_told_once(tmp_path, command):
    file = tmp_path / "file"
    file.write_text("text")
    done = invoke(*command.split(), cwd=tmp_path, env={"ONETOOL_HOME": str(file)}, stdin="value\n")
    said = done.stdout + done.stderr
    assert (done.returncode > 0, said.count(f"ONETOOL_HOME is a file: {file}; set it to a folder")) == (True, 1), said
    assert "Traceback" not in said
    assert file.read_text() == "text"
