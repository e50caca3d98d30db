"""A document that keeps its shape, whatever was said."""

from helpers import each
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from onetool.ask.messages import Assistant, Call, File, Result, Usage, User
from onetool.ask.sessions import Transcript
from onetool.ask.sessions.markdown import markdown
from onetool.ask.sessions.records import UNDER_WAY


def transcript(*messages, **others):
    turns = sum(isinstance(one, User) for one in messages)
    given = {"turns": turns, "usage": Usage(), "damaged": 0, "created": 0.0, "modified": 60.0} | others
    return Transcript(id="work", messages=messages, times=tuple(range(len(messages))), **given)


def test_a_session():
    text = markdown(
        transcript(
            User(text="What is\n# this?", files=(File(name="a`b.txt", text="secret"),)),
            Assistant(text="Let me look.", calls=(Call(id="1", name="fs.read", args={"path": "a"}),)),
            Result(call="1", name="fs.read", content="```\nfenced\n```"),
            Assistant(text="A file."),
            usage=Usage(input=1234, output=5),
            provider="openai",
            model="gpt-x",
            damaged=2,
            title="My *trip*",
        )
    )
    assert text == (
        "# Session work\n\n- Name: `My *trip*`\n"
        "- From 1970-01-01 00:00:00 UTC to 1970-01-01 00:01:00 UTC\n- Questions: 1\n- Model: `gpt-x` (`openai`)\n"
        "- Tokens: 1,234 in, 5 out\n- Unreadable lines, not shown here: 2\n\n"
        "## Question 1 · 1970-01-01 00:00:00 UTC\n\n> What is\n> # this?\n\nAttached: `` a`b.txt `` (`text/plain`)\n\n"
        "### Before tool calls · 1970-01-01 00:00:01 UTC\n\n> Let me look.\n\n"
        "### Tool `fs.read` · 1970-01-01 00:00:02 UTC · ok\n\n"
        '```json\n{\n  "path": "a"\n}\n```\n\n````\n```\nfenced\n```\n````\n\n'
        "### Answer · 1970-01-01 00:00:03 UTC\n\n> A file.\n"
    )


def test_what_was_malformed_or_broken_off():
    text = markdown(
        transcript(
            User(text="a"),
            Assistant(calls=(Call(id="1", name="x\ny", malformed='{"a'),)),
            Result(call="1", name="x\ny", content="no\r\x1b[2Jway\x9b", ok=False),
            Assistant(text="I was", broken_off=True),
        )
    )
    assert '### Tool `x y` · 1970-01-01 00:00:02 UTC · failed\n\n```\n{"a\n```\n\n```\nno\n␛[2Jway\ufffd\n```' in text
    assert text.endswith("> I was\n\nThe answer was cut off.\n")
    assert "called tools" not in text


def test_nothing_turns_the_text_around_or_hides_in_it():
    """Whatever is neither seen nor needed. What languages need stays."""
    bad = "\u202e\u2066\u200b\u200f\u2028\u061c\ufeff\U000e0041"
    needed = "a\u00adb می\u200cخواهم 👩\u200d💻 ❤\ufe0f 東\u3000京"
    call = Call(id="1", name=f"x{bad}y", args={"path": f"a{bad}"})
    text = markdown(
        transcript(
            User(text=bad + needed, files=(File(name=bad, text=""),)),
            Assistant(text=bad, calls=(call,)),
            Result(call="1", name=call.name, content=bad),
        )
    )
    assert not set(bad) & set(text)
    assert text.count("\ufffd" * len(bad)) == 6
    assert needed in text


PICTURE = "![p](http://t.example/p.png)"
TAG = "<img src=http://t.example/x>"
HOSTILE = [
    PICTURE,
    TAG,
    f"\\{PICTURE}",
    f"\\{TAG}",
    "[a]: http://t.example/r\n\n![a]\n\n![b][a]",
    "<!-- -->\n<video src=http://t.example/v></video>\n</p>",
    f"~~~\n```\n~~~\n{TAG} {PICTURE}",
    f"  ~~~\n```\n  ~~~\n{TAG} {PICTURE}",
    f"- ~~~\n```\n  ~~~\n\n  {TAG} {PICTURE}",
    f"> ```\n{TAG}\n```\n{PICTURE}\n```\n{TAG}",
    f"```\nx\n  ```\n{TAG} {PICTURE}",
    f"```\n~~~\n```\n{TAG} {PICTURE}",
    f"```a`b\n{TAG} {PICTURE}",
    f"<div>\n```\n</div>\n\n{TAG} {PICTURE}",
    f"1. a\n   ```\n{TAG}\n   ```\n{PICTURE}",
    f"    ```\n{TAG}\n\n{PICTURE}",
]


def kinds(text):
    """The kinds of all tokens, as a viewer reads the document that takes HTML."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return {one.type for token in tokens for one in (token, *(token.children or ()))}


@each("hostile", HOSTILE)
def test_a_viewer_loads_nothing(hostile):
    text = markdown(transcript(User(text=hostile), Assistant(text=hostile)))
    assert not kinds(text) & {"image", "html_inline", "html_block"}


@given(
    st.lists(st.sampled_from(["```", "~~~", "````", TAG, PICTURE, "\n", "\n", "  ", "> ", "- ", "a", "`", "\\", "\t"]))
)
def test_whatever_stands_around_it(parts):
    text = markdown(transcript(User(text="".join(parts))))
    assert not kinds(text) & {"image", "html_inline", "html_block"}


def test_pictures_are_links_and_code_stays_code():
    answer = f"See {PICTURE}\n\n```java\nList<String> a;\n```\n\na < b"
    text = markdown(transcript(User(text="a"), Assistant(text=answer)))
    assert "> See ! [p](http://t.example/p.png)\n" in text
    assert "> List<String> a;\n" in text
    assert "> a < b\n" in text
    assert {"link_open", "fence"} <= kinds(text)


def test_times_that_are_none():
    for one, other in ((1e300, -1e18), (float("nan"), -0.5), (float("inf"), 253_402_300_799)):
        assert "From ? to ?" in markdown(transcript(created=one, modified=other))


def test_a_call_that_is_under_way():
    said = Assistant(calls=(Call(id="1", name="t"),)), Result(call="1", name="t", content=UNDER_WAY, ok=False)
    assert "### Tool `t` · 1970-01-01 00:00:01 UTC · under way\n" in markdown(transcript(*said))


TEXT = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(
            ["```", "````", "~~~", "`", "<!-- ", "<script>", "# x", "\n", "\r", "\r\n", "> ", "- ", "    ", "a"]
        ),
        max_size=12,
    ).map("".join),
)


@given(TEXT, TEXT, TEXT, TEXT)
def test_nothing_breaks_out(question, answer, name, content):
    """Blocks of the whole document, as a reader of CommonMark sees them."""
    messages = (
        User(text=f"q{question}", files=(File(name=name),)),
        Assistant(text=f"b{answer}", calls=(Call(id="1", name=name, args={content: answer}),)),
        Result(call="1", name=name, content=content),
        Assistant(text=f"a{answer}"),
    )
    blocks = [one for one in MarkdownIt("commonmark").parse(markdown(transcript(*messages))) if one.level == 0]
    kinds = [one.type.removesuffix("_open") + one.tag for one in blocks if not one.type.endswith("_close")]
    assert kinds == [
        *("headingh1", "bullet_listul", "headingh2", "blockquoteblockquote", "paragraphp"),
        *("headingh3", "blockquoteblockquote", "headingh3", "fencecode", "fencecode"),
        *("headingh3", "blockquoteblockquote"),
    ]
