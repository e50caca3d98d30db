"""Files given as data: URLs: what they become, and what decoding them costs."""

import tracemalloc

import pytest
from http_harness import harness
from upstream import Upstream

from onetool.core.errors import BadArguments, ToolFailure
from onetool.http.files import stored_file


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def put(upstream, **more):
    return harness(
        upstream, {"method": "PUT", "bodyFile": "${f}"}, schema={"properties": {"f": {"type": "string"}}}, **more
    )


@pytest.fixture
def memory():
    """A function that returns the most bytes that the test has had at once."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.attack("limits")
@pytest.mark.parametrize(
    "content",
    ["," + "%41" * 1_000_000, ";base64," + "QUFB" * 500_000, ";base64," + "%51" * 2_000_000, "," + "%" * 4_000_000],
    ids=["escapes", "base64", "escaped base64", "percent signs"],
)
def test_a_data_url_is_counted_before_it_is_decoded(upstream, memory, content):
    call = put(upstream, limits={"maxRequestBytes": 200_000})
    with pytest.raises(BadArguments, match="larger than the tool may send"):
        call(f=f"data:{content}")
    assert memory() < 3 * len(content)


@pytest.mark.long
@pytest.mark.attack("limits")
def test_escapes_cost_little_more_than_what_they_stand_for(upstream, memory):
    put(upstream)(f="data:," + "%41" * 200_000)
    assert memory() < 8_000_000
    assert upstream.seen[0].body == b"A" * 200_000


@pytest.mark.attack("limits")
def test_too_many_files(upstream):
    request = {"method": "POST", "multipart": {"f": {"file": "${f}"}}}
    call = harness(upstream, request, schema={"properties": {"f": {}}})
    with pytest.raises(BadArguments, match="more than 10,000 files"):
        call(f=["data:,"] * 10_001)


@pytest.mark.parametrize(
    ("url", "kind", "body"),
    [
        ("data:text/html;charset=utf-8,%C3%BC", "text/html;charset=utf-8", "ü".encode()),
        ("data:text/html;name=a.txt;charset=utf-8;base64,QQ%3D%3D", "text/html;charset=utf-8", b"A"),
        ("data:image/svg+xml;utf8,<svg>ü%</svg>", "image/svg+xml", "<svg>ü%</svg>".encode()),
        ("data:text/html;charset=a\r\nX-Evil: 1,%%41%4", "text/html", b"%A%4"),
        ("data:;charset=utf-8,x", "application/octet-stream", b"x"),
        ("data:,", "application/octet-stream", b""),
    ],
)
def test_media_type_and_content(upstream, url, kind, body):
    put(upstream)(f=url)
    assert (upstream.seen[0].headers["content-type"], upstream.seen[0].body) == (kind, body)
    assert "x-evil" not in upstream.seen[0].headers


def test_a_data_url_of_exactly_the_limit_is_sent(upstream):
    call = put(upstream, limits={"maxRequestBytes": 5_000})
    for url in ("data:," + "x" * 4_500, "data:," + "%78" * 4_500, "data:;base64," + "eHh4" * 1_500):
        call(f=url)
        assert upstream.seen[-1].body == b"x" * 4_500


@pytest.mark.parametrize("text", ["data:x;base64,QQ==", "data:image/png;base64,QQQQQ"])
def test_a_stored_text_that_only_looks_like_a_picture_is_a_text(text):
    file = stored_file(text, 1000)
    assert (file.name, file.data) == ("result.txt", text.encode())


def test_a_stored_picture_that_is_too_large_is_refused():
    with pytest.raises(ToolFailure, match="larger"):
        stored_file("data:image/png;base64," + "QUFB" * 100, 100)
