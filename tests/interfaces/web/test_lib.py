"""What the page does by itself, without a browser: parts of lib/ run by Node, with a scripted server."""

import json
import subprocess

import pytest
from helpers import each
from tests import npm
from web.build import NODE, WEB, environment, run_tests

PACKAGES = NODE / "node_modules"
SHIMS = """
// Signals of Svelte are plain values here: nothing is drawn.
const state = (value) => value;
globalThis.$state = Object.assign(state, { raw: state, snapshot: state });
const kept = new Map();
globalThis.localStorage = {
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => kept.set(key, value),
  removeItem: (key) => kept.delete(key),
};
const heard = {};
globalThis.addEventListener = (name, told) => (heard[name] ??= []).push(told);
globalThis.happen = (name, event = {}) => (heard[name] ?? []).forEach((told) => told(event));
globalThis.document = { baseURI: "http://127.0.0.1/", documentElement: { style: {} } };
globalThis.location = { hash: "" };
globalThis.history = { pushState() {}, replaceState() {} };
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.asked = [];
globalThis.answers = {};
globalThis.fetch = async (url, sent) => {
  const key = `${sent.method} ${url.pathname}`;
  asked.push(key);
  const answer = answers[key] ?? { status: 204 };
  const status = answer.status ?? 200;
  const events = answer.events?.map(([name, data]) => `event: ${name}\\ndata: ${JSON.stringify(data)}\\n\\n`);
  if (events) return new Response(events.join(""), { headers: { "content-type": "text/event-stream" } });
  return new Response(status === 204 ? null : JSON.stringify(answer.json ?? {}), { status });
};
globalThis.turn = (ms = 0) => new Promise((done) => setTimeout(done, ms));
"""


END = """
const say = (found) => console.log(JSON.stringify(found ?? null));
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
const work = new Function(require("node:fs").readFileSync(0, "utf8"))();
texts.start().then(() => work(...lib)).then(say, fail).then(() => process.exit(0));
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Runs a script with names of lib/, and gives what it returns."""
    if not (PACKAGES / "rolldown").exists():
        pytest.skip("THE PAGE'S PARTS ARE NOT TESTED: its packages are not installed (`make web` does)")

    bundles = {}  # by the imports: a bundle takes longer than its scripts

    def run(imports, script):
        names = ", ".join(imports.values())
        if (key := json.dumps(imports)) not in bundles:
            bundles[key] = bundle(imports, names)
        done = _done(bundles[key], *npm.node(), "made/driver.js", input=f"return (async ({names}) => {{ {script} }});")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def bundle(imports, names):
        folder = tmp_path_factory.mktemp("lib")
        lib = WEB / "src" / "lib"
        lines = [f"import {{ {some} }} from {json.dumps(str(lib / file))};" for file, some in imports.items()]
        (folder / "shims.ts").write_text(SHIMS, encoding="utf-8")
        lines.append(f'import {{ i18n as texts }} from "{lib}/page/i18n.svelte.ts";')
        driver = "\n".join(['import "./shims";', *lines, f"const lib = [{names}];", END])
        (folder / "driver.ts").write_text(driver, encoding="utf-8")
        cli = [*npm.node(), PACKAGES / "rolldown" / "bin" / "cli.mjs", "driver.ts", "--platform", "node"]
        made = _done(folder, *cli, "--format", "cjs", "-d", "made")
        assert made.returncode == 0, made.stdout + made.stderr
        return folder

    return run


def _done(folder, *command, **options):
    options |= {"cwd": folder, "env": environment(), "capture_output": True, "text": True, "check": False}
    return subprocess.run([*map(str, command)], **options)


AHEAD = {"api/ahead.ts": "FIRST_PAGE, askAhead, toolsQuery", "api/client.ts": "get, setSession"}


@pytest.mark.parametrize(
    ("login", "ahead"),
    [
        ({"needed": False}, ["GET /login", "GET /tools/tools"]),
        ({"needed": True, "signedIn": True}, ["GET /login", "GET /tools/tools"]),
        ({"needed": True, "signedIn": False}, ["GET /login"]),
    ],
)
def test_the_first_requests_are_sent_once(node, login, ahead):
    script = f"""
        answers["GET /login"] = {{ json: {json.dumps(login)} }};
        await askAhead();
        const sent = [...asked];
        const found = await get("login");
        if (sent.length > 1) await get("tools/tools", {{ query: toolsQuery(FIRST_PAGE) }});
        return [sent, found, asked];
    """
    assert node(AHEAD, script) == [ahead, login, ahead]


def test_responses_sent_ahead_are_for_one_user_and_one_use(node):
    script = """
        answers["GET /login"] = { json: { needed: false } };
        await askAhead();
        await get("login");
        await get("login");
        setSession("ots_other");
        await get("tools/tools", { query: toolsQuery(FIRST_PAGE) });
        return asked;
    """
    assert node(AHEAD, script) == ["GET /login", "GET /tools/tools", "GET /login", "GET /tools/tools"]


def test_responses_sent_ahead_end_with_the_session_of_another_tab(node):
    script = """
        whenSessionChanged(() => {});
        await askAhead();
        localStorage.setItem("onetool.session", JSON.stringify("ots_other"));
        happen("storage", { key: "onetool.session" });
        await get("login");
        return asked;
    """
    names = {**AHEAD, "api/client.ts": "get, setSession, whenSessionChanged"}
    assert node(names, script) == ["GET /login", "GET /login"], "the second is of the other user"


def test_the_history_ends_with_the_session_even_if_it_was_not_loaded(node):
    script = """
        localStorage.setItem(`onetool.${HISTORY_KEY}`, JSON.stringify("{}"));
        session.askToken();
        return localStorage.getItem(`onetool.${HISTORY_KEY}`);
    """
    assert node({"call/history-key.ts": "HISTORY_KEY", "api/session.svelte.ts": "session"}, script) is None


LATER = {
    "api/deleted-later.svelte.ts": "deletedLater",
    "page/notices.svelte.ts": "notices",
    "api/session.svelte.ts": "session",
}


def test_what_is_deleted_is_deleted_once_when_its_undo_goes(node):
    found = node(
        LATER,
        """
        const back = [];
        for (const name of ["a", "b", "c"]) deletedLater.add(`x/${name}`, name, () => back.push(name));
        const before = [...asked];
        notices.undo(notices.list[0]);
        notices.close(notices.list[0].id);
        await turn();
        const closed = [...asked];
        happen("pagehide");
        happen("pagehide");
        await turn();
        return { before, closed, all: asked, back, has: ["a", "b", "c"].map((one) => deletedLater.has(`x/${one}`)) };
        """,
    )
    assert found["before"] == []
    assert found["closed"] == ["DELETE /x/b"]
    assert found["all"] == ["DELETE /x/b", "DELETE /x/c"], "each once"
    assert found["back"] == ["a"]
    assert found["has"] == [False, True, True], "what is deleted is not shown, what was taken back is"


def test_a_fifth_notice_ends_the_undo_of_the_first_and_a_failure_brings_back(node):
    found = node(
        LATER,
        """
        answers["DELETE /x/a"] = { status: 503, json: { detail: "no disk" } };
        const back = [];
        deletedLater.add("x/a", "a", () => back.push("a"));
        for (const name of ["1", "2", "3", "4"]) notices.done(name);
        await turn(5);
        return { asked, back, kinds: notices.list.map((one) => one.kind), has: deletedLater.has("x/a") };
        """,
    )
    assert found == {"asked": ["DELETE /x/a"], "back": ["a"], "kinds": ["done"] * 3 + ["error"], "has": False}


def test_deletions_are_sent_before_the_session_ends_and_nothing_stays(node):
    found = node(
        {**LATER, "call/play.svelte.ts": "play", "call/calls.svelte.ts": "calls"},
        """
        session.state = "in";
        deletedLater.add("x/a", "secret title");
        play.type("secret()");
        [play.printed, play.calls, play.ran] = ["secret", [{}], {}];
        calls.take({ name: "secret" });
        await session.signOut();
        await turn();
        happen("pagehide");
        const { code, printed, ran } = play;
        const kept = localStorage.getItem("onetool.play");
        return { asked, left: [code, printed, ran, play.calls.length, calls.list.length, notices.list.length, kept] };
        """,
    )
    assert found["asked"] == ["DELETE /x/a", "DELETE /login", "GET /login"]  # may one stay without a session?
    assert found["left"] == ["", "", None, 0, 0, 0, '""']


def test_older_pages_stay_when_the_first_is_read_anew(node):
    found = node(
        {"api/pages.ts": "withFirst, withNext"},
        """
        const rows = (...times) => times.map((at) => ({ id: `r${at}`, at: String(at) }));
        const [id, at] = [(one) => one.id, (one) => one.at];
        const first = { rows: rows(9, 8), next: "t8" };
        const more = withNext(first, { rows: rows(8, 7, 6), next: "t6" }, id);
        const show = (one) => [one.rows.map(id), one.next];
        return [
          show(more),
          show(withFirst(more, { rows: rows(10, 9), next: "t9" }, id, at)),  // one is new
          show(withFirst(more, { rows: rows(9, 7), next: "t7" }, id, at)),   // one of the first page is gone
          show(withFirst(more, { rows: rows(9), next: null }, id, at)),      // all others are gone
        ];
        """,
    )
    assert found == [
        [["r9", "r8", "r7", "r6"], "t6"],
        [["r10", "r9", "r8", "r7", "r6"], "t6"],
        [["r9", "r7", "r6"], "t6"],
        [["r9"], None],
    ]


def test_what_comes_often_is_done_together_and_not_put_off_for_ever(node):
    found = node(
        {"page/soon.ts": "Soon"},
        """
        let done = 0;
        const soon = new Soon(() => (done += 1), 30);
        for (let n = 0; n < 12; n += 1) {
          soon.want();
          await turn(10);
        }
        return done;
        """,
    )
    assert 2 <= found <= 5


CHAT = {"chat/chat.svelte.ts": "Conversation", "chat/working.svelte.ts": "working"}
STARTED = ["started", {"question": "q1", "sessionId": "s1"}]
APPROVAL = [
    "approval",
    {"question": "q1", "call": "c1", "name": "lamp", "args": {}, "warnings": [], "expiresInSeconds": 90},
]


def test_a_refused_question_goes_back_to_the_field(node):
    found = node(
        CHAT,
        """
        const chat = new Conversation(null, () => {});
        const show = () => [chat.draft, chat.files.length, chat.items.map((one) => one.kind), chat.mayAskAgain];
        const once = async (status) => {
          answers["POST /ask"] = { status, json: { code: "x", detail: "no" } };
          [chat.draft, chat.files] = ["Hello", [{ name: "a.png", kind: "image/png", data: "AAAA" }]];
          await chat.ask({ provider: "", model: "" }, true);
          return show();
        };
        return [await once(413), await once(503), working.list.length];
        """,
    )
    assert found[0] == ["Hello", 1, ["failed"], False]
    assert found[1] == ["", 0, ["failed", "user", "failed"], True]
    assert found[2] == 0


@each(("status", "decided"), [(404, "no"), (409, "no"), (503, None), (401, None), (429, None)])
def test_an_approval_that_was_not_heard_can_be_repeated(node, status, decided):
    script = f"""
        answers["POST /ask"] = {{ events: {json.dumps([STARTED, APPROVAL])} }};
        answers["POST /ask/q1/approvals/c1"] = {{ status: {status}, json: {{ detail: "no" }} }};
        const chat = new Conversation(null, () => {{}});
        chat.draft = "Hello";
        const asking = chat.ask({{ provider: "", model: "" }}, true);
        while (!chat.items.some((one) => one.approval)) await turn(1);
        const item = chat.items.find((one) => one.approval);
        const left = Math.round((item.approval.expiresAt - Date.now()) / 1000);
        await chat.decide(item, true);
        const decided = chat.items.find((one) => one.approval).approval.decided;
        await asking;
        return [left, decided];
    """
    assert node(CHAT, script) == [90, decided]


def test_much_that_is_printed_is_drawn_together_and_says_that_its_beginning_is_cut(node):
    events = [["print", {"text": "x" * 1000}] for _ in range(300)] + [["result", {"value": 1}]]
    found = node(
        {"call/play.svelte.ts": "play"},
        f"""
        answers["POST /run"] = {{ events: {json.dumps(events)} }};
        let drawn = 0;
        let printed = "";
        const set = (text) => ([drawn, printed] = [drawn + 1, text]);
        Object.defineProperty(play, "printed", {{ get: () => printed, set }});
        play.type("1");
        await play.run();
        return [drawn < 20, play.printed.length, play.isPrintCut];
        """,
    )
    assert found == [True, 200_000, True]


def test_only_whole_rows_are_a_table(node):
    found = node(
        {"text/row-lines.ts": "rowsIn"},
        """
        return [
          rowsIn(["- {name: Oslo, days: [1, 2]}", "- {name: 'a, b', days: []}"]),
          rowsIn(['{"a": 1}', '{"a": 2}']),
          rowsIn(["- name: Oslo", "  days: 3"]),           // a row of several lines may be cut at the page's end
          rowsIn(["  days: 3", "- name: Rome"]),
          rowsIn(["- note: buy tea", "- todo: sleep"]),    // any list that somebody wrote
        ];
        """,
    )
    assert [one["name"] for one in found[0]] == ["Oslo", "a, b"]
    assert found[1] == [{"a": 1}, {"a": 2}]
    assert found[2:] == [None, None, None]


def test_a_tool_that_was_begun_can_be_brought_back_when_code_takes_its_place(node):
    found = node(
        {
            "call/play.svelte.ts": "play",
            "api/catalog.svelte.ts": "catalog",
            "build/draft.svelte.ts": "Draft",
            "build/build.ts": "newTool",
            "page/notices.svelte.ts": "notices",
        },
        """
        catalog.bundles = [{ id: "b1", isBuiltIn: false, isEnabled: true }];
        const place = { bundleID: "b1", slug: "", version: "1" };
        const opened = () => new Draft("new/script/b1", { content: newTool("script"), place, etag: null, isNew: true });
        const begun = opened();
        begun.set("/scriptImpl/code", "half()");
        begun.set("/displayName", "Half done");
        begun.keep();
        play.type("whole()");
        catalog.state = "ready";
        await play.saveAsTool();
        const taken = [opened().text("/scriptImpl/code"), opened().text("/displayName")];
        notices.undo(notices.list[0]);
        return [taken, [opened().text("/scriptImpl/code"), opened().text("/displayName")]];
        """,
    )
    assert found == [["whole()", ""], ["half()", "Half done"]]


def test_of_a_session_that_ends_by_itself_the_code_stays(node):
    found = node(
        {"call/play.svelte.ts": "play", "api/session.svelte.ts": "session", "api/client.ts": "request"},
        """
        session.state = "in";
        play.type("mine()");
        play.printed = "secret";
        answers["GET /x"] = { status: 401 };
        await request("x").catch(() => {});
        return [session.state, play.code, play.printed];
        """,
    )
    assert found == ["out", "mine()", ""]


def test_conversations_do_not_fill_the_memory(node):
    found = node(
        {"chat/chats.svelte.ts": "chats"},
        """
        const written = chats.of("written");
        written.draft = "half a question";
        const first = chats.of("s0");
        for (let n = 1; n < 60; n += 1) chats.of(`s${n}`);
        return [chats.of("written") === written, chats.of("s59") === chats.of("s59"), chats.of("s0") === first];
        """,
    )
    assert found == [True, True, False]


def test_how_far_a_run_is_is_told_while_it_runs(node):
    events = [["progress", {"progress": 3, "total": 10, "message": "third"}], ["result", {"value": 1}]]
    found = node(
        {"call/play.svelte.ts": "play"},
        f"""
        answers["POST /run"] = {{ events: {json.dumps(events)} }};
        const told = [];
        Object.defineProperty(play, "progress", {{ set: (one) => told.push(one) }});
        play.type("1");
        await play.run();
        return told;
        """,
    )
    assert found == [None, {"done": 3, "total": 10, "message": "third"}, None]


@each(
    ("text", "shown", "name"),
    [
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb", "\U0001f469⟨U+200D⟩\U0001f4bb"),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f⟨U+200D⟩\U0001f525"),
        (
            "\U0001f468\U0001f3fd\u200d\U0001f680",
            "\U0001f468\U0001f3fd\u200d\U0001f680",
            "\U0001f468\U0001f3fd⟨U+200D⟩\U0001f680",
        ),
        ("می\u200cخواهم", "می\u200cخواهم", "می⟨U+200C⟩خواهم"),
        ("क्\u200dष", "क्\u200dष", "क्⟨U+200D⟩ष"),
        ("pay\u200dpal", "pay⟨U+200D⟩pal", "pay⟨U+200D⟩pal"),
        ("می\u200c", "می⟨U+200C⟩", "می⟨U+200C⟩"),
        ("می\u200c\u200cخ", "می⟨U+200C⟩⟨U+200C⟩خ", "می⟨U+200C⟩⟨U+200C⟩خ"),
        ("\U0001f469\u200dx", "\U0001f469⟨U+200D⟩x", "\U0001f469⟨U+200D⟩x"),
        ("a\u200bb\u202ec", "a⟨U+200B⟩b⟨U+202E⟩c", "a⟨U+200B⟩b⟨U+202E⟩c"),
    ],
)
def test_joiners_stay_where_writing_needs_them_and_never_in_names_to_approve(node, text, shown, name):
    found = node(
        {"text/shown": "exactName, shown"}, f"return [shown({json.dumps(text)}), exactName({json.dumps(text)})];"
    )
    assert found == [shown, name]


@pytest.mark.long  # CI runs `make test-web` once
def test_the_logic_of_the_page_does_what_its_own_tests_say():
    if not (PACKAGES / "vitest").exists():
        pytest.skip("THE PAGE'S LOGIC IS NOT TESTED: its packages are not installed (`make web` does)")
    run_tests()
