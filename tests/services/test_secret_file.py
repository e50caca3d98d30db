"""What a person wrote around a secret stays."""

from functools import partial

import yaml

from onetool.config.fill import check_kept
from onetool.services.secret_file import drop_secret, put_secret

OTHERS = '# mine\nODD: "a\u2028b\u0085c"\nTAB: "x\ty"\n'


def test_other_values_stay_whatever_signs_are_in_them(tmp_path):
    file = tmp_path / "secrets.yaml"
    file.write_text(OTHERS, encoding="utf-8")
    put_secret(file, "NEW", "value-0123456789", partial(check_kept, "NEW", "value-0123456789"))
    assert file.read_text(encoding="utf-8") == OTHERS + 'NEW: "value-0123456789"\n'
    assert drop_secret(file, "NEW", partial(check_kept, "NEW", None))
    assert file.read_text(encoding="utf-8") == OTHERS


def test_a_file_without_a_last_line_end_or_without_anything_is_extended(tmp_path):
    for before in ("", "\n", "OLD: x", "OLD: x\n"):
        file = tmp_path / "secrets.yaml"
        file.write_text(before)
        put_secret(file, "NEW", "y", partial(check_kept, "NEW", "y"))
        assert yaml.safe_load(file.read_text()) == ({"OLD": "x"} if "OLD" in before else {}) | {"NEW": "y"}
