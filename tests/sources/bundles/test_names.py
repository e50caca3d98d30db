"""Slugs, versions, ids."""

import re
import unicodedata
from threading import Thread

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.sources.bundles import names
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import check_id, check_slug, check_version, code_name, derived_id, new_id

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@each("slug", ["a", "read-file", "A", "Größe", "天气", "п-1", "-", "--", "٣", "x" * 64, "𝔘" * 64])
def test_slugs_that_may_be(slug):
    assert check_slug(slug) == slug
    assert check_version(slug) == slug


@each("slug", ["a_b", "a b", "a/b", "..", "a.b", "a\n", "a\u200b", "Ⅷ", "²", "a+b", "\ud800", "a\0"])
def test_slugs_that_may_not_be(slug):
    with pytest.raises(InvalidError, match="slug") as caught:
        check_slug(slug)
    assert caught.value.pointer == "/slug"


@each("version", ["1.0.0", "..", ".", "v1", "1-rc.2", "." * 64])
def test_versions_may_have_dots(version):
    assert check_version(version) == version


def test_an_empty_one_and_one_too_long_say_so():
    with pytest.raises(InvalidError, match="empty"):
        check_slug("")
    with pytest.raises(InvalidError, match=r"65 characters; the limit is 64"):
        check_version("x" * 65)


def test_the_normal_form_is_told():
    with pytest.raises(InvalidError) as caught:
        check_slug(unicodedata.normalize("NFD", "Grö"))
    assert str(caught.value).endswith(r"normal form NFC: write 'Gr\xf6' instead of 'Gro\u0308'")  # they look the same


@given(st.text(max_size=70))
def test_exactly_letters_digits_and_dashes(text):
    allowed = all(sign == "-" or unicodedata.category(sign) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd") for sign in text)
    fits = allowed and 1 <= len(text) <= 64 and unicodedata.is_normalized("NFC", text)
    try:
        check_slug(text)
    except InvalidError:
        assert not fits
    else:
        assert fits


def test_ids_are_uuids_of_version_7(monkeypatch):
    monkeypatch.setattr(names, "_last", 0)
    id = new_id(1_763_222_400.123)
    assert UUID7.fullmatch(id)
    assert int(id.replace("-", "")[:12], 16) == 1_763_222_400_123
    assert check_id(id) == id


@pytest.mark.parametrize("id", ["", "x", "01890a5d-ac96-474b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057"])
def test_other_ids_are_refused(id):
    with pytest.raises(InvalidError, match="UUIDv7"):
        check_id(id)


def test_upper_case_is_taken_as_lower_case():
    assert check_id("01890A5D-AC96-774B-BCCE-B302099A8057") == "01890a5d-ac96-774b-bcce-b302099a8057"


def test_new_ids_are_always_greater_also_when_the_clock_goes_back(monkeypatch):
    monkeypatch.setattr(names, "_last", 0)
    ids = [new_id(now) for now in [1000.0] * 100 + [500.0] * 100 + [2000.0]]
    assert ids == sorted(set(ids))


def test_new_ids_of_many_threads_differ():
    found = []
    threads = [Thread(target=lambda: found.extend(new_id(3000.0) for _ in range(500))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 4000


def test_derived_ids_are_stable_and_differ():
    assert derived_id("a") == derived_id("a") != derived_id("b")
    assert UUID7.fullmatch(derived_id("a"))


def test_names_in_code():
    assert code_name("read-file") == "read_file"
