"""Secrets: looked up by name, never shown, and taken out of texts."""

import copy
import html
import json
import pickle
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
from helpers import calls, each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.services.secrets import MASK, MAX_LENGTH, MAX_RECENT, Secret, Secrets, too_open

# A busy or fresh machine (hypothesis collects Unicode's characters once) is not a mistake of ours.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_its_own_values_come_before_the_environment() -> None:
    secrets = Secrets({"A": "of-file"}, env={"A": "of-env", "B": "b-env"})
    assert (secrets.get("A"), secrets.get("B"), secrets.get("C")) == ("of-file", "b-env", None)
    assert "A" in secrets
    assert "B" in secrets
    assert "C" not in secrets
    assert 5 not in secrets
    assert secrets.names() == ["A"]


def test_an_empty_value_is_not_set() -> None:
    secrets = Secrets({"A": "", "B": ""}, env={"A": "of-env", "C": ""})
    assert (secrets.get("A"), secrets.get("B"), secrets.get("C")) == ("of-env", None, None)
    assert "C" not in secrets


def test_two_know_nothing_of_each_other() -> None:
    Secrets({"A": "sesame"}).get("A")
    assert Secrets().redact("sesame") == "sesame"


def test_the_repr_shows_names_alone() -> None:
    assert repr(Secrets({"B": "sesame", "A": "hidden"}, env={"C": "x"})) == "Secrets(A, B)"


def test_redact_takes_out_its_own_values_at_once_and_the_environments_when_looked_up() -> None:
    secrets = Secrets({"A": "sesame"}, env={"B": "of-env"})
    assert secrets.redact("sesame of-env") == "*** of-env"
    assert "B" in secrets
    assert secrets.redact("sesame of-env") == "*** of-env"
    secrets.get("B")
    assert secrets.redact("sesame of-env sesame") == "*** *** ***"


def test_redact_takes_the_longest_first_and_leaves_short_ones() -> None:
    secrets = Secrets({"A": "sesame", "B": "sesame-street", "C": "abc", "D": "a.c+"})
    assert secrets.redact("sesame-street sesame abc a.c+ axcc") == "*** *** abc *** axcc"


def test_redact_finds_values_that_were_escaped() -> None:
    secrets = Secrets({"A": 'a"b\\c\né/ d'})
    texts = (
        '"a\\"b\\\\c\\n\\u00e9/ d"',
        '"a\\"b\\\\c\\né/ d"',
        "?k=a%22b%5Cc%0A%C3%A9%2F%20d",
        "?k=a%22b%5Cc%0A%C3%A9%2F+d",
    )
    for text in texts:
        assert secrets.redact(text).strip('"').removeprefix("?k=") == MASK


def test_redact_finds_values_in_a_page() -> None:
    value = "a\"b'c&d<e>f"
    secrets = Secrets({"A": value})
    for text in (html.escape(value), html.escape(value, quote=False), "a&#34;b&#39;c&amp;d&lt;e&gt;f"):
        assert secrets.redact(f"<p>{text}</p>") == f"<p>{MASK}</p>"


@pytest.mark.parametrize("value", ["hunter2-and-more", "sk-0123456789abcdef/+==", "pässwörd-ist-lang"])
def test_redact_finds_values_that_were_encoded(value: str) -> None:
    secrets, raw = Secrets({"A": value}), value.encode()
    told = Secrets({})
    told.mask_also(value)
    encoded = [
        *(f(b"x" * before + raw + b"y" * after) for f in (b64encode, urlsafe_b64encode) for before in range(4)
          for after in range(4)),
        raw.hex().encode(), raw.hex().upper().encode(),
        "".join(f"%{one:02x}" for one in raw).encode(), quote(value, safe="").lower().encode(),
        json.dumps(json.dumps(value)).encode(), json.dumps(value).replace("/", "\\/").encode(),
    ]  # fmt: skip
    for one in (data.decode() for data in encoded):
        for masking in (secrets, told):
            assert MASK in masking.redact(one), one
            assert masking.redact_data([one]) == [masking.redact(one)]


def test_masking_a_large_text_stays_fast() -> None:
    secrets = Secrets({str(number): f"secret-number-{number:020}" for number in range(5)})
    text = "".join(f"line {number} of a text, {number * 7919:x}\n" for number in range(40_000))
    with calls(5_000):  # of 40,000 lines
        assert secrets.redact(text) == text


@patient
@given(st.lists(st.text(min_size=8), min_size=1, max_size=5), st.text(), st.text())
def test_no_value_is_left(values: list[str], before: str, after: str) -> None:
    secrets = Secrets({str(number): value for number, value in enumerate(values)})
    for value in values:
        assert value not in secrets.redact(f"{before}{value}{after}").replace(MASK, "\0") or set(value) <= set("\0")


def test_nothing_known_nothing_changed() -> None:
    assert Secrets().redact("a text") == "a text"


def test_a_secret_is_a_text_that_does_not_show_itself() -> None:
    secret = Secret("sesame", shown="${TOKEN}")
    assert secret == "sesame"
    assert f"Bearer {secret}" == "Bearer sesame"
    assert repr({"k": [secret]}) == "{'k': ['${TOKEN}']}"
    assert repr(Secret("sesame")) == "'***'"
    for again in (copy.deepcopy(secret), pickle.loads(pickle.dumps(secret))):
        assert (again, repr(again)) == ("sesame", "'${TOKEN}'")


@pytest.mark.skipif(not hasattr(Path, "chmod"), reason="modes say nothing there")
def test_a_file_is_too_open_when_others_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "my secrets.yaml"
    assert too_open(file) is None
    file.touch()
    for mode in (0o600, 0o400, 0o700):
        file.chmod(mode)
        assert too_open(file) is None
    for mode in (0o640, 0o604, 0o660, 0o666):
        file.chmod(mode)
        assert too_open(file) == f"chmod 600 '{file}'"
    assert too_open(tmp_path) is None


def test_a_short_secret_is_masked_where_it_stands_by_itself() -> None:
    secrets = Secrets({"A": "test", "B": "long-enough-secret"})
    assert secrets.redact("a test of testing: test=test, untested") == "a *** of testing: ***=***, untested"
    assert secrets.redact("xlong-enough-secretx") == "x***x"


def test_data_is_masked_however_deep() -> None:
    secrets = Secrets({"A": "hunter2"})
    value = {"hunter2": [("hunter2", 1), {"x": None}], "n": 1.5}
    assert secrets.redact_data(value) == {"***": [["***", 1], {"x": None}], "n": 1.5}
    assert Secrets().redact_data(value) is value


def test_of_many_that_are_told_the_ones_used_last_are_known():
    secrets = Secrets({"A": "of-the-config-1"})
    secrets.mask_always("our-own-password")
    secrets.mask_also("token-0-abcdef")
    for number in range(1, MAX_RECENT + 50):
        secrets.mask_also(f"token-{number}-abcdef")
        secrets.mask_also("token-0-abcdef")
    assert secrets.redact("token-0-abcdef") == "***"
    assert secrets.redact("token-1-abcdef") == "token-1-abcdef", "it was used long ago"
    assert secrets.redact_data(["of-the-config-1", "our-own-password"]) == ["***", "***"]
    secrets.mask_also("x" * (MAX_LENGTH + 1) + "1")
    assert secrets.redact_data(["x" * 10]) == ["x" * 10]


def test_they_may_be_told_from_many_threads():
    secrets = Secrets()
    failed = []

    def tell(part):
        try:
            for number in range(400):
                secrets.mask_also(f"token-{part}-{number}-abcdef")
                assert secrets.redact(f"token-{part}-{number}-abcdef") == "***"
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=tell, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@each(
    ("data", "shown"),
    [
        ([10**5000, "topsecret99"], [10**5000, "***"]),
        ({1: "topsecret99", None: 2}, {1: "***", None: 2}),
        ({"a": ("topsecret99", b"x")}, {"a": ["***", b"x"]}),
        ([1234567890123, 12], ["***", 12]),
        ([float("nan"), "topsecret99"][1:], ["***"]),
        ([True, None, 1.5], [True, None, 1.5]),
    ],
)
def test_odd_data(data, shown):
    assert Secrets({"A": "topsecret99", "B": "1234567890123"}).redact_data(data) == shown


def test_no_part_of_a_secret_is_left_over_where_two_overlap():
    secrets = Secrets({"A": "sk-live-0123456789", "B": "6789-and-more-of-it"})
    secrets.mask_also("sk-live-0123")
    assert secrets.redact("x sk-live-0123456789 y") == "x *** y"
    assert secrets.redact("x sk-live-0123456789-and-more-of-it y") == "x *** y"
    assert secrets.redact("sk-live-0123456789sk-live-0123456789") == "******"


def test_numbers_and_pages():
    secrets = Secrets({"PIN": "4820195712", "HTML": "a<b>&c'd-0123"})
    assert secrets.redact_data([4820195712, 4820195712.0, 4820195713.0]) == ["***", "***", 4820195713.0]
    assert secrets.redact('{"x": "a\\u003cb\\u003e\\u0026c\\u0027d-0123"}') == '{"x": "***"}'
