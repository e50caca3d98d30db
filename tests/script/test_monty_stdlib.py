"""The library's modules, run in the real sandbox, say what CPython's modules of the same name say."""

import csv
import heapq
import io
import itertools
import math
import operator
import re
import statistics
import string
import sys
import textwrap
import urllib.parse
from decimal import Decimal

import pytest
from helpers import each, sandboxed
from hypothesis import assume, given
from hypothesis import strategies as st

from onetool.script.rewrite import AVAILABLE, prelude

BOUND = "\n".join(f"{name} = __onetool_{name}" for name in sorted(AVAILABLE) if "." not in name)
SETUP = """
from decimal import Decimal
import csv
import math
inf, nan = math.inf, math.nan
def number(value):
    return isinstance(value, (int, float))
def attempt(call):
    try:
        value = call()
    except Exception as error:
        return type(error).__name__ + ': ' + str(error)
    return value if number(value) or isinstance(value, list) and all(map(number, value)) else repr(value)
"""
REAL = {
    "csv": csv,
    "heapq": heapq,
    "io": io,
    "operator": operator,
    "statistics": statistics,
    "string": string,
    "textwrap": textwrap,
    "urllib": urllib,
}


@pytest.fixture(scope="module")
def session():
    with sandboxed() as run:
        run(prelude(AVAILABLE))
        run(BOUND + SETUP)
        yield run


def ours(session, calls):
    """What each call gives, by its repr: of numbers the host's, since the sandbox rounds the last digit differently."""
    return list(map(text, session("[" + ", ".join(f"attempt(lambda: {call})" for call in calls) + "]")))


def text(value):
    return value if isinstance(value, str) else repr(value)


def theirs(calls):
    names = dict(REAL)
    exec(SETUP, names)
    said = [text(names["attempt"](eval(f"lambda: {call}", names))) for call in calls]
    return [re.sub("^StatisticsError", "ValueError", one) for one in said]


def same(session, *calls):
    """Values by their repr, errors by type and message."""
    assert dict(zip(calls, ours(session, calls), strict=True)) == dict(zip(calls, theirs(calls), strict=True))


def close(session, *calls):
    """The same numbers but for the last digits, where versions of Python differ from each other."""
    for call, left, right in zip(calls, ours(session, calls), theirs(calls), strict=True):
        number = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
        assert number.sub("N", left) == number.sub("N", right), call
        for a, b in zip(number.findall(left), number.findall(right), strict=True):
            assert math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-12), call


def test_the_comparison_can_fail(session):
    with pytest.raises(AssertionError):
        same(session, "1 if hasattr(operator, 'matmul') else math.nextafter(1, 2)")
    with pytest.raises(AssertionError):
        close(session, "1.0 if hasattr(operator, 'matmul') else 1.1")


# statistics

NUMBERS = [
    "[1, 2, 3, 4]",
    "[1, 2, 3]",
    "[3]",
    "[]",
    "[1.5, 2.5, 10]",
    "[0.1] * 10",
    "[0.1, 0.2, 0.3]",
    "[1e308, 1e308]",
    "[1e-320, 3e-320, 5e-324]",
    "[True, False, True]",
    "[Decimal('1.1'), Decimal('2.2'), 3]",
    "[Decimal('0.1'), Decimal('0.2'), Decimal('0.3'), Decimal('7')]",
    "['a', 'b']",
    "[None]",
    "(5, 1, 4)",
    "range(10)",
    "{4, 2, 9}",
    "[10**30, 1, -10**30]",
    "[-1, 1]",
    "[1e16, 1.0, -1e16]",
]


@each("name", ["mean", "median", "median_low", "median_high", "mode", "multimode", "pvariance", "variance"])
def test_one_list_to_one_number(session, name):
    data = [one for one in NUMBERS if "mode" not in name or not one.startswith(("{", "[1, D"))]  # sets have any order
    same(session, *(f"statistics.{name}({one})" for one in data))


@pytest.mark.parametrize("name", ["stdev", "pstdev", "fmean", "median_grouped"])
def test_roots_and_floats(session, name):
    plain = [data for data in NUMBERS if "Decimal" not in data and "'" not in data and "None" not in data]
    same(session, *(f"statistics.{name}({data})" for data in plain))
    close(session, *(f"statistics.{name}({data})" for data in NUMBERS if "Decimal" in data and "1.5" not in data))


def test_kinds_that_do_not_mix(session):
    """Which of the two is named first is anybody's guess, CPython's too."""
    [told] = ours(session, ["statistics.mean([1, Decimal('1'), 1.5])"])
    assert told.startswith("TypeError: don't know how to coerce ")


def test_infinity_and_nan(session):
    same(session, *(f"statistics.mean({data})" for data in ("[1, inf]", "[inf, -inf]", "[nan, 1]", "[-inf]")))
    same(session, "statistics.pvariance([1.0, nan])", "statistics.fmean([inf, 1])")


def test_with_a_known_middle(session):
    names = ("variance", "pvariance", "stdev", "pstdev")
    same(session, *(f"statistics.{name}([1.5, 2, 4], {c})" for name in names for c in (2, 2.5, 0)))


def test_a_root_just_above_the_middle_of_two_floats(session):
    same(session, "statistics.pstdev([2**53 + 2, 2**53], 0)", "statistics.pstdev([2**53 + 4, 2**53 + 2], 0)")


def test_harmonic_and_geometric(session):
    data = ["[40, 60]", "[5]", "[0, 1]", "[-1, 2]", "[]", "[1.5, 2.5, 3]", "[Decimal(40), Decimal(60)]", "[0]", "[-1]"]
    same(session, *(f"statistics.harmonic_mean({one})" for one in data))
    same(
        session,
        "statistics.harmonic_mean([40, 60], weights=[5, 30])",
        "statistics.harmonic_mean([40, 60], [1])",
        "statistics.harmonic_mean([40, 60], [-1, 2])",
        "statistics.harmonic_mean([40, 0], [1, 0])",
        "statistics.harmonic_mean([40, 60], [0, 0])",
    )
    close(session, "statistics.geometric_mean([54, 24, 36])", "statistics.geometric_mean([0.5])")
    assert ours(session, ["statistics.geometric_mean([])", "statistics.geometric_mean([-1])"]) == [
        "ValueError: Must have a non-empty dataset",
        "ValueError: No negative inputs allowed",
    ]


def test_weighted_mean(session):
    close(session, "statistics.fmean([85, 92, 83, 91], [0.2, 0.2, 0.3, 0.3])")
    same(
        session,
        "statistics.fmean([1, 2], [1])",
        "statistics.fmean([1, 2], weights=[0, 0])",
        "statistics.fmean([])",
        "statistics.median_grouped([1, 3, 3, 5, 7], interval=2)",
    )


def test_quantiles(session):
    data = ["[1, 2]", "[1, 2, 3, 4, 5]", "[105, 129, 87, 86, 111, 111, 89, 81, 108, 92, 110]", "[1.5, 0.5, 9]"]
    for n in (1, 2, 4, 10, 100):
        for method in ("exclusive", "inclusive"):
            same(session, *(f"statistics.quantiles({one}, n={n}, method={method!r})" for one in data))
    same(session, "statistics.quantiles([1, 2], n=0)", "statistics.quantiles([1, 2], method='x')")
    assert ours(session, ["statistics.quantiles([7])"]) == ["[7, 7, 7]"]  # as CPython since 3.13


def test_two_lists(session):
    x, y = [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 1, 2, 3, 1, 2.5, 3]
    for name in ("covariance", "correlation", "linear_regression"):
        close(session, f"statistics.{name}({x}, {y})")
        same(session, f"statistics.{name}([1], [1])", f"statistics.{name}([1, 2], [1])")
    close(session, f"statistics.linear_regression({x}, {y}, proportional=True)")
    same(session, "statistics.correlation([1, 1], [1, 2])", "statistics.linear_regression([1, 1], [1, 2])")
    assert ours(session, ["statistics.correlation([1, 2, 3, 3], [1, 10, 90, 90], method='ranked')"]) == ["1.0"]
    if sys.version_info >= (3, 12):
        close(session, f"statistics.correlation({x}, {y}, method='ranked')")
        same(session, "statistics.correlation([1, 2], [1, 2], method='x')")


@given(
    st.one_of(
        st.lists(st.integers(), max_size=20),
        st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=20),
        st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150), max_size=20),
        st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-10000, max_value=10000)),
    )
)
def test_any_numbers(session, data):
    names = ["mean", "median", "median_high", "mode", "multimode", "pvariance", "variance", "quantiles"]
    if any(isinstance(one, Decimal) for one in data) or len(data) == 1:
        names.remove("quantiles")
    else:
        names += ["stdev", "pstdev"]
    same(session, *(f"statistics.{name}({data!r})" for name in names if data or name != "quantiles"))


def test_a_wrong_call_names_the_function(session):
    calls = ["statistics.stdev()", "heapq.nlargest()", "urllib.parse.SplitResult()"]
    for call, told in zip(calls, ours(session, calls), strict=True):
        assert told.startswith(f"TypeError: {call.rpartition('.')[2]} missing "), told


# string


def test_string_constants(session):
    names = ["ascii_lowercase", "ascii_uppercase", "ascii_letters", "digits", "hexdigits", "octdigits", "punctuation"]
    same(session, *(f"string.{name}" for name in [*names, "whitespace", "printable"]))


@given(st.text(alphabet="aB ß-\t\n", max_size=20))
def test_capwords(session, text):
    same(session, f"string.capwords({text!r})", f"string.capwords({text!r}, '-')")


TEMPLATES = [
    "$who likes ${what}",
    "$$5 and $who",
    "$",
    "a $ b",
    "line\nnext $5",
    "${who",
    "${}",
    "$missing ${missing} $who",
    "$whose",
    "$who.name ${who}s",
    "",
    "nothing",
    "$_x1 $Ünder",
]


@each("text", TEMPLATES)
def test_templates(session, text):
    values = "{'who': 'tim', 'what': 3, '_x1': None}"
    same(
        session,
        f"string.Template({text!r}).substitute({values})",
        f"string.Template({text!r}).substitute({values}, who='eva')",
        f"string.Template({text!r}).safe_substitute({values})",
        f"string.Template({text!r}).safe_substitute(who='eva')",
        f"string.Template({text!r}).get_identifiers()",
        f"string.Template({text!r}).is_valid()",
        f"string.Template({text!r}).template",
    )


@given(st.text(alphabet="$ab{}_ \n1", max_size=20))
def test_any_template(session, text):
    template = f"string.Template({text!r})"
    same(session, f"{template}.safe_substitute(a=1, b='$')", f"{template}.substitute(a=1, ab=2)")


# textwrap

LOREM = (
    "The quick brown fox jumped over the lazy dog -- a well-known, twenty-one-word, so-called state-of-the-art "
    'sentence.  It ends here!  "Does it?"  e-mail --option 1-2 x-y-z Supercalifragilisticexpialidocious   \t tab'
)


@each("width", [1, 2, 5, 10, 20, 34, 70, 500])
def test_wrap_and_fill(session, width):
    more = [
        "",
        ", initial_indent='* ', subsequent_indent='  '",
        ", break_long_words=False",
        ", break_on_hyphens=False",
        ", drop_whitespace=False",
        ", replace_whitespace=False, expand_tabs=False",
        ", fix_sentence_endings=True",
        ", max_lines=2",
        ", max_lines=1, placeholder='…'",
        ", tabsize=3, max_lines=3, placeholder=' ..'",
    ]
    same(session, *(f"textwrap.wrap({LOREM!r}, {width}{one})" for one in more))
    same(session, *(f"textwrap.fill({LOREM!r}, width={width}{one})" for one in more))


def test_wrap_edges(session):
    same(
        session,
        "textwrap.wrap('')",
        "textwrap.wrap('1-a-bcd', 4, break_long_words=False)",
        "textwrap.wrap('x-a-bcd', 4, break_long_words=False)",
        "textwrap.wrap('   ')",
        "textwrap.wrap('a', 0)",
        "textwrap.TextWrapper(9, '> ', '  ').wrap('aaa bbb ccc')",
        "textwrap.wrap('a', -1)",
        "textwrap.wrap('aaa bbb', 3, max_lines=1)",
        "textwrap.wrap('aaa bbb', initial_indent='> ')",
        "textwrap.TextWrapper(width=5).wrap('aaa bbb')",
        "textwrap.TextWrapper(width=5).fill('aaa bbb')",
    )


@given(
    st.text(alphabet="ab-  .\t\né1_,", max_size=40),
    st.integers(1, 12),
    st.fixed_dictionaries(
        {},
        optional={
            "break_long_words": st.booleans(),
            "break_on_hyphens": st.booleans(),
            "drop_whitespace": st.booleans(),
            "replace_whitespace": st.booleans(),
            "expand_tabs": st.booleans(),
            "fix_sentence_endings": st.booleans(),
            "initial_indent": st.sampled_from(["", " ", "> "]),
            "subsequent_indent": st.sampled_from(["", "    "]),
            "max_lines": st.integers(1, 3),
            "placeholder": st.sampled_from(["…", " [..]"]),
        },
    ),
)
def test_any_paragraph(session, text, width, options):
    assume(width > len(options.get("subsequent_indent", "")) and width > len(options.get("initial_indent", "")))
    same(session, f"textwrap.wrap({text!r}, {width}, **{options!r})")


def test_an_indent_wider_than_the_line_ends(session):
    """CPython goes on for ever."""
    options = {"subsequent_indent": "    ", "drop_whitespace": False}
    assert session(f"textwrap.wrap('ab', 1, **{options!r})") == ["a", "    b"]


@each("width", [0, 3, 5, 8, 11, 12, 100])
def test_shorten(session, width):
    same(
        session,
        f"textwrap.shorten('Hello  world!', width={width})",
        f"textwrap.shorten(' Hello\\tworld and all ', {width}, placeholder='...')",
        f"textwrap.shorten('', {width})",
    )


@given(st.text(alphabet=" \t\nab\r", max_size=40))
def test_dedent_and_indent(session, text):
    same(session, f"textwrap.indent({text!r}, '+ ')", f"textwrap.indent({text!r}, '> ', lambda line: True)")
    if "\r" not in text:  # a line of nothing but a carriage return: versions of Python differ
        same(session, f"textwrap.dedent({text!r})")


# urllib.parse

URLS = [
    "http://user:pa%20ss@Example.COM:8080/a/b;p=1?q=1&r=2#frag",
    "https://example.com",
    "https://example.com/",
    "https://example.com?x=1",
    "https://example.com#f",
    "//host/path",
    "/just/a/path",
    "path/only;x",
    "",
    "mailto:someone@example.com",
    "tel:+123;ext=5",
    "urn:isbn:0451450523",
    "file:///etc/hosts",
    "HTTP://[::1]:80/x",
    "http://[FE80::1%25eth0]/",
    "http://user@host",
    "http://:@host:/",
    "  https://example.com/lead",
    "http://a/b\nc\td",
    "http://[broken/",
    "1http://x/y",
    "a:b:c",
    "http:///path",
    "http://h/a?b?c#d#e",
    "http://h/;p?;q#;r",
    "git+ssh://git@github.com/a/b.git",
]
PARTS = ["scheme", "netloc", "path", "query", "fragment", "username", "password", "hostname", "port"]


def test_results_take_their_parts_by_name(session):
    same(
        session,
        "urllib.parse.SplitResult(scheme='a', netloc='b', path='/c', query='d', fragment='e').geturl()",
        "urllib.parse.ParseResult('a', 'b', '/c', query='d', fragment='e', params='f').geturl()",
        "urllib.parse.DefragResult(url='a', fragment='b').geturl()",
    )


@each("url", URLS)
def test_urls_apart_and_together(session, url):
    for function in ("urlparse", "urlsplit"):
        call = f"urllib.parse.{function}({url!r})"
        same(session, call, f"tuple({call})", f"{call}.geturl()", f"{call}[1:3]")
        same(session, *(f"{call}.{part}" for part in PARTS))
    same(
        session,
        f"urllib.parse.urlparse({url!r}).params",
        f"urllib.parse.urldefrag({url!r})",
        f"urllib.parse.urldefrag({url!r}).url",
        f"urllib.parse.urlsplit({url!r}, 'x', False)",
        f"urllib.parse.urlunparse(urllib.parse.urlparse({url!r}))",
        f"urllib.parse.urlparse({url!r})._replace(netloc='other', query='').geturl()",
        f"urllib.parse.urlsplit({url!r})._asdict()",
        f"urllib.parse.urlsplit({url!r}) == urllib.parse.urlsplit({url!r})",
        f"urllib.parse.urlsplit({url!r}) == tuple(urllib.parse.urlsplit({url!r}))",
        f"hash(urllib.parse.urlsplit({url!r})) == hash(urllib.parse.urlsplit({url!r}))",
    )


def test_url_parts_unpack(session):
    code = "scheme, netloc, *rest = urllib.parse.urlsplit('http://h/p?q')\n[scheme, netloc, rest]"
    assert session(code) == ["http", "h", ["/p", "q", ""]]


def test_a_bad_port_is_none(session):
    assert ours(session, ["urllib.parse.urlsplit('http://h:x/').port"]) == ["None"]


def test_urlunparse_of_lists(session):
    same(
        session,
        "urllib.parse.urlunparse(['http', 'h', 'p', 'x', 'q=1', 'f'])",
        "urllib.parse.urlunsplit(('', '', 'p', '', ''))",
        "urllib.parse.urlunsplit(('https', 'h', '', 'a=b', ''))",
        "urllib.parse.urlunsplit(('file', '', '/x', '', ''))",
    )


# The examples of RFC 3986, 5.4, and then some.
RELATIVE = [
    "g:h",
    "g",
    "./g",
    "g/",
    "/g",
    "//g",
    "?y",
    "g?y",
    "#s",
    "g#s",
    "g?y#s",
    ";x",
    "g;x",
    "g;x?y#s",
    ".",
    "./",
    "..",
    "../",
    "../g",
    "../..",
    "../../",
    "../../g",
    "../../../g",
    "/./g",
    "/../g",
    "g.",
    ".g",
    "g..",
    "..g",
    "./../g",
    "./g/.",
    "g/./h",
    "g/../h",
    "g;x=1/./y",
    "g;x=1/../y",
    "g?y/./x",
    "g#s/../x",
    "http:g",
    "https://o/x",
    "mailto:a",
    "a//b",
    "./a//../b",
    "//",
]
BASES = ["http://a/b/c/d;p?q", "http://a", "http://a/", "/x/y", "x/y", "?q", "", "mailto:x", "file:///a/b", "svn://h/x"]


@each("base", BASES)
def test_urljoin(session, base):
    urls = [url for url in [*RELATIVE, ""] if not (url == "//" and base == "")]
    if base in ("/x/y", "?q", "x/y"):
        urls = [url for url in urls if ".." not in url or (url == "../g" and base != "?q")]
    if base.startswith("file:"):  # what is above the root, where there is no host, differs between Python's versions
        urls = [url for url in urls if ".." not in url]
    same(session, *(f"urllib.parse.urljoin({base!r}, {url!r})" for url in urls))


def test_nothing_is_above_the_root(session):
    """As the RFC has it; CPython loses the slash when there is no host."""
    assert ours(session, ["urllib.parse.urljoin('/x/y', '../../../g')"]) == ["'/g'"]


@given(st.text(max_size=15) | st.binary(max_size=15))
def test_quoting(session, text):
    calls = [f"urllib.parse.quote({text!r})", f"urllib.parse.quote_plus({text!r})", f"urllib.parse.quote({text!r}, '')"]
    same(session, *calls, f"urllib.parse.quote({text!r}, safe='é~ :&')", f"urllib.parse.unquote_to_bytes({text!r})")
    same(session, f"[ord(one) for one in urllib.parse.unquote(urllib.parse.quote({text!r}))]")


@given(st.text(alphabet="%aF0e2C3A9+é/ ", max_size=20))
def test_unquoting(session, text):
    same(session, *(f"urllib.parse.{name}({text!r})" for name in ("unquote", "unquote_plus", "unquote_to_bytes")))


def test_quoting_edges(session):
    same(
        session,
        "urllib.parse.quote(3)",
        "urllib.parse.quote_from_bytes('a')",
        "urllib.parse.quote('a b', safe=b' ')",
        "urllib.parse.quote_plus('a b+c', safe=b'+')",
        "urllib.parse.unquote(b'a%20b')",
        "urllib.parse.unquote('%ff', errors='ignore')",
        "urllib.parse.unquote('%E9', 'ascii')",
    )


def test_urlencode(session):
    queries = [
        "{'a': 1, 'b c': 'd&e=é'}",
        "[('a', 1), ('a', None)]",
        "(('a', True),)",
        "{}",
        "[]",
        "{'a': [1, 2], 'b': 'xy', 'c': (), 'd': 3, 'e': b'\\xff'}",
        "'a=b'",
        "''",
        "{b'k': b'v v'}",
        "{'u': 'http://x/y z'}",
    ]
    for query in queries:
        same(
            session,
            f"urllib.parse.urlencode({query})",
            f"urllib.parse.urlencode({query}, doseq=True)",
            f"urllib.parse.urlencode({query}, safe='/:')",
            f"urllib.parse.urlencode({query}, quote_via=urllib.parse.quote)",
        )


@given(st.text(alphabet="ab=&;+%20é", max_size=20), st.booleans(), st.booleans())
def test_query_strings(session, text, keep, strict):
    same(
        session,
        f"urllib.parse.parse_qs({text!r}, {keep}, {strict})",
        f"urllib.parse.parse_qsl({text!r}, keep_blank_values={keep}, strict_parsing={strict})",
        f"urllib.parse.parse_qsl({text!r}, separator=';')",
        f"urllib.parse.parse_qs({text!r}, max_num_fields=2)",
    )


# heapq


@given(st.lists(st.integers(-5, 5), max_size=20), st.lists(st.integers(-5, 5) | st.none(), max_size=15))
def test_heaps(session, start, steps):
    """None takes from the heap; the lists stay the same at every step."""
    code = f"""
def go():
    heap, seen = {start!r}, []
    heapq.heapify(heap)
    for step in {steps!r}:
        if step is None:
            seen.append(attempt(lambda: heapq.heappop(heap)))
        else:
            heapq.heappush(heap, step)
            seen.append(heapq.heappushpop(heap, step + 1))
            seen.append(heapq.heapreplace(heap, -step))
        seen.append(list(heap))
    return seen
go()"""
    names = dict(REAL)
    exec(SETUP + code.rpartition("\n")[0], names)
    message = "IndexError: index out of range"
    assert session(code) == names["go"]()
    same(session, "heapq.heappop([])", "heapq.heapreplace([], 1)", "heapq.heappushpop([], 1)")
    assert message in ours(session, ["heapq.heappop([])"])


@given(st.lists(st.tuples(st.integers(-3, 3), st.text("ab", max_size=2)), max_size=12), st.integers(-1, 14))
def test_largest_smallest_merge(session, data, n):
    for name in ("nlargest", "nsmallest"):
        same(session, f"heapq.{name}({n}, {data!r})", f"heapq.{name}({n}, {data!r}, key=lambda one: one[0])")
    left, right = sorted(data[::2]), sorted(data[1::2])
    key = "key=lambda one: one[0]"
    same(session, f"list(heapq.merge({left}, {right}))", f"list(heapq.merge({left}, {right}, {key}))")
    same(session, f"list(heapq.merge({left[::-1]}, {right[::-1]}, {key}, reverse=True))", "next(heapq.merge([1], [0]))")


# operator


def test_getters(session):
    data = "[{'a': 2, 'b': [1]}, {'a': 1, 'b': [2]}]"
    same(
        session,
        f"sorted({data}, key=operator.itemgetter('a'))",
        f"[operator.itemgetter('a', 'b')(one) for one in {data}]",
        "operator.itemgetter(1)([5, 6])",
        "operator.itemgetter(slice(1, 3))('abcd')",
        "operator.itemgetter(9)([1])",
        "operator.itemgetter('x')({})",
        "operator.attrgetter('path')(urllib.parse.urlsplit('/a'))",
        "operator.attrgetter('path', 'query')(urllib.parse.urlsplit('/a?b'))",
        "operator.attrgetter('parse.quote')(urllib)('é')",
    )


@each(
    "name",
    [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and_",
        "or_",
        "xor",
        "lshift",
        "rshift",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "is_",
        "is_not",
    ],
)
def test_operators_of_two(session, name):
    pairs = itertools.product((7, 2, 0), (3, 1) if name in ("floordiv", "mod") else (3, 1, 0))
    same(session, *(f"operator.{name}({a}, {b})" for a, b in pairs))


def test_other_operators(session):
    same(
        session, *(f"operator.{name}({a})" for name in ("neg", "pos", "not_", "truth", "invert", "inv") for a in (5, 0))
    )
    same(
        session,
        "operator.concat([1], [2])",
        "operator.contains([1], 1)",
        "operator.contains('ab', 'c')",
        "operator.countOf([1, 2, 1], 1)",
        "operator.indexOf([1, 2], 2)",
        "operator.indexOf([1, 2], 3)",
        "operator.getitem({'a': 1}, 'a')",
        "[(operator.setitem(one, 0, 5), one) for one in [[1]]]",
        "[(operator.delitem(one, 0), one) for one in [[1, 2]]]",
    )


# io


@given(
    st.text(alphabet="ab\n", max_size=12),
    st.lists(
        st.one_of(
            st.text(alphabet="xy\n", max_size=4).map(lambda text: f"f.write({text!r})"),
            st.integers(-1, 5).map(lambda n: f"f.read({n})"),
            st.integers(-1, 5).map(lambda n: f"f.readline({n})"),
            st.integers(-1, 5).map(lambda n: f"f.readlines({n})"),
            st.integers(-1, 9).map(lambda n: f"f.seek({n})"),
            st.integers(-1, 9).map(lambda n: f"f.truncate({n})"),
            st.sampled_from(
                ["f.seek(0, 2)", "f.seek(0, 1)", "f.seek(1, 2)", "f.seek(0, 7)", "f.truncate()", "f.read()"]
            ),
            st.sampled_from(["f.tell()", "f.closed", "f.write(3)", "list(f)", "f.readlines()", "next(f)", "f.flush()"]),
            st.sampled_from(["f.writelines(['a', 'b'])", "f.read(None)"]),
        ),
        max_size=10,
    ),
)
def test_text_in_memory(session, start, steps):
    steps += ["f.close()", "f.closed", "f.read()", "f.write('a')", "f.tell()", "f.readline()", "f.seek(0)", "f.close()"]
    calls = ", ".join(f"attempt(lambda: {step}), attempt(lambda: f.getvalue())" for step in steps)
    same(session, f"(lambda f: [{calls}])(io.StringIO({start!r}))")


def test_a_hint_for_lines(session):
    same(session, *(f"io.StringIO('a\\nb\\nc').readlines({hint})" for hint in (0, 1, 2, 3, 4, 9)))


def test_csv_in_memory(session):
    code = """
def go():
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(['a', 'b'])
    writer.writerows([[1, 'x,y'], [None, 'two\\nlines']])
    with io.StringIO(out.getvalue()) as back:
        rows = list(csv.DictReader(back))
    return [out.getvalue(), rows, back.closed]
go()"""
    names = dict(REAL)
    exec(code.rpartition("\n")[0], names)
    assert session(code) == names["go"]()
