"""Docstrings: Google, NumPy and reST style, and those that are none of them."""

import re
from unittest.mock import patch

import pytest
from helpers import each, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.sdk import docs
from onetool.sdk.docs import FunctionDocs, read_docs, read_text

GOOGLE = """Search the web.

    It looks everywhere. Note: this
    takes a while.

    Args:
        query: What to look for,
            in any language.
        limit (int, optional): How many. Defaults to 5.
        *tags: Only these.
        **options (str): More: see the manual.

    Returns:
        The pages, best first.

    Raises:
        ValueError: If there is no query.

    Example:
        >>> search("cats")
        ['a cat']
"""

NUMPY = """Search the web.

    It looks everywhere. Note: this
    takes a while.

    Parameters
    ----------
    query : str
        What to look for,
        in any language.
    limit : int, optional
        How many. Defaults to 5.
    *tags
        Only these.
    **options : str
        More: see the manual.

    Returns
    -------
    list of str
        The pages, best first.

    Examples
    --------
    >>> search("cats")
    ['a cat']
"""

REST = """Search the web.

    It looks everywhere. Note: this
    takes a while.

    :param query: What to look for,
        in any language.
    :type query: str
    :param int limit: How many. Defaults to 5.
    :param \\*tags: Only these.
    :param \\*\\*options: More: see the manual.
    :returns: The pages, best first.
    :rtype: list[str]
    :raises ValueError: If there is no query.
"""

STYLES = pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["Google", "NumPy", "reST"])


@STYLES
def test_the_description_is_what_stands_before_the_sections(text):
    assert read_text(text).description == "Search the web.\n\nIt looks everywhere. Note: this\ntakes a while."


@STYLES
def test_each_parameter_has_its_words_in_one_line(text):
    assert read_text(text).parameters == {
        "query": "What to look for, in any language.",
        "limit": "How many. Defaults to 5.",
        "tags": "Only these.",
        "options": "More: see the manual.",
    }


@STYLES
def test_what_is_returned_has_its_words(text):
    assert read_text(text).returns == "The pages, best first."


@pytest.mark.parametrize("text", [GOOGLE, NUMPY], ids=["Google", "NumPy"])
def test_examples_are_kept(text):
    [example] = read_text(text).examples
    assert example.startswith('>>> search("cats")')


def test_one_description_may_be_for_several_parameters():
    text = "Go.\n\nParameters\n----------\nx, y : float\n    Where.\n"
    assert read_text(text).parameters == {"x": "Where.", "y": "Where."}


@each("title", ["Args", "Arguments", "Params", "Keyword Args", "Keyword Arguments", "Attributes"])
def test_google_has_many_words_for_parameters(title):
    docs = read_text(f"Go.\n\n{title}:\n    x: Where.\n")
    assert (docs.description, docs.parameters) == ("Go.", {"x": "Where."})


@pytest.mark.parametrize(
    "text", ["Go.\n\nReturns: The place.", "Go.\n\nReturn:\n    The place.", "Go.\n\n:return: The place."]
)
def test_a_short_return_section(text):
    docs = read_text(text)
    assert (docs.description, docs.returns) == ("Go.", "The place.")


@pytest.mark.parametrize(
    "text", ["Go.\n\nNow: or never.\n\n  - one\n  - two", "Open it.\n\n:memory: is a database too."]
)
def test_a_docstring_without_sections_is_all_description(text):
    assert read_text(text) == FunctionDocs(text)


def test_sections_alone_leave_the_name_in_words():
    def read_the_news():
        """
        Args:
            x: Where.
        """

    assert read_docs(read_the_news).description == "read the news"


def test_no_docstring_gives_the_name_in_words():
    def read_the_news(): ...

    assert read_docs(read_the_news) == FunctionDocs("read the news")


@each(
    "text",
    [
        "Go.\n\nArgs:\n    x without a colon\n",
        "Go.\n\nArgs:\n",
        "Go.\n\nArgs:\nx: not indented\n",
        "Go.\n\n:param: no name\n",
        "Go.\n\n:raises a b c d: e\n",
        "Go.\n\nParameters\n----------\n",
        "Go.\n\nReturns\n-------\n",
        "Go.\n\nReturns:\n\nRaises:\n",
    ],
)
def test_a_broken_docstring_keeps_its_description(text):
    assert read_text(text).description == "Go."


LINES = st.sampled_from(
    [
        "Args:",
        "Returns:",
        "Raises: x",
        "    x: y",
        "x : int",
        "    y",
        "-----",
        "Parameters",
        ":param x: y",
        ":",
        "",
        "\t",
        "Go.",
        "Examples:",
    ]
)


@given(st.lists(LINES | st.text(max_size=10), max_size=12).map("\n".join))
def test_no_docstring_is_ever_refused(text):
    assert isinstance(read_text(text), FunctionDocs)


PLAIN = st.from_regex(r"[A-Za-z][a-z:.,()\[\]{}` ]{0,20}[a-z.]", fullmatch=True)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), st.lists(PLAIN, min_size=1, max_size=3))
    ),
    st.lists(PLAIN, max_size=2),
)
def test_what_is_read_without_the_library_is_read_as_it_would(arguments, returns):
    text = "Words.\n"
    if arguments:
        text += "\nArgs:\n" + "".join(f"    {name}: " + "\n        ".join(words) + "\n" for name, words in arguments)
    if returns:
        text += "\nReturns:\n    " + "\n    ".join(returns) + "\n"
    ours = read_text(text)
    with patch.object(docs, "_PLAIN", re.compile(r"(?!)")):
        assert ours == read_text(text)
