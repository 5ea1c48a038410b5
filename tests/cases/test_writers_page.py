"""The counts of the matrix of writers in the documentation are those of the matrix."""

from __future__ import annotations

import yaml

from tests.tools.make_writers_matrix import MATRIX, PAGE, WHY, page


def test_the_page_is_of_this_matrix() -> None:
    assert page(yaml.safe_load(MATRIX.read_text())) == PAGE.read_text(), "run python tests/tools/make_writers_matrix.py"


def test_every_reason_is_of_a_rule_of_the_matrix() -> None:
    assert set(WHY) <= {cell.get("rule") for cell in yaml.safe_load(MATRIX.read_text())["cells"]}
