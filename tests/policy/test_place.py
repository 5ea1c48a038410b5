import pytest

from webhook.kube.documents import load
from webhook.policy.reader import Reader

# Every way to write the same expression; the word that is looked for stands on the marked place.
STYLES = {
    "plain": "spec:\n  e: a && wrong\n",
    "plain, next line": "spec:\n  e:\n    a && wrong\n",
    "plain, two lines": "spec:\n  e: a &&\n    wrong\n",
    "double quotes": 'spec:\n  e: "a && wrong"\n',
    "single quotes": "spec: {e: 'a && wrong'}\n",
    "quoted key": "spec:\n  'e': 'a && wrong'\n",
    "anchor": "spec:\n  e: &x a && wrong\n",
    "literal": "spec:\n  e: |\n    a &&\n      wrong\n",
    "literal, indented": "spec:\n  e: |2\n      a &&\n      wrong\n",
    "folded": "spec:\n  e: >-\n    a &&\n    wrong\n",
    "folded, blank line": "spec:\n  e: >\n    a &&\n\n    wrong\n",
    "after another document": "x: 1\n---\n# comment\nspec:\n  e: a && wrong\n",
    "json": '{"spec": {\n  "e": "a && wrong"}}',
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())
def test_a_place_in_an_expression_is_found_in_its_file(text: str) -> None:
    document = load(text.encode(), "f.yaml")[-1]
    expression = Reader(document).expression(document.value["spec"], "e", "spec")
    before = expression.source[: expression.source.index("wrong")]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    lines = text.split("\n")
    expected = next((number, row.index("wrong") + 1) for number, row in enumerate(lines, 1) if "wrong" in row)
    assert expression.place(line, column) == expected


def test_a_place_beyond_the_expression_stays_near_it() -> None:
    document = load(b"spec: {e: a}", "f.yaml")[0]
    expression = Reader(document).expression(document.value["spec"], "e", "spec")
    assert expression.place(0, 0) == (1, 11)
    assert expression.place(9, 9)[0] == 1
