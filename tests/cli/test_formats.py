"""Every format against a golden file: what `check` prints about tests/cli/golden/input in it.

Where a message changed, in tests/cli/golden: `allocguard check input --cluster cluster.yaml --at 2026-11-20T09:00:00Z`
with `-o` of each format, and a look at the difference.
"""

import json
import re
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from webhook.cli.formats import FORMATS

VERSION = version("allocguard")
GOLDEN = Path(__file__).parent / "golden"
SUFFIXES = {"text": "txt", "json": "json", "yaml": "yaml", "junit": "xml", "sarif": "sarif", "github": "github",
            "markdown": "md"}  # fmt: skip


@pytest.fixture
def printed(run, monkeypatch):
    monkeypatch.chdir(GOLDEN)

    def printed(name):
        ran = run("check", "input", "--cluster", "cluster.yaml", "--at", "2026-11-20T09:00:00Z", "-o", name)
        assert ran.err == ""
        assert ran.code == 1
        return ran.out

    return printed


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_prints_what_the_golden_file_holds(printed, name):
    golden = (GOLDEN / f"check.{SUFFIXES[name]}").read_text()
    assert printed(name) == golden.replace('"version": "0.1.0"', f'"version": "{VERSION}"')


def test_json_and_yaml_say_the_same(printed):
    assert json.loads(printed("json")) == yaml.safe_load(printed("yaml"))


def test_json_counts_what_it_lists(printed):
    report = json.loads(printed("json"))
    severities = [each["severity"] for each in report["findings"]]
    assert report["summary"] == {
        "documents": 4,
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "infos": severities.count("info"),
    }
    assert all(severities.count(name) for name in ("error", "warning", "info"))


def test_junit_fails_the_cases_with_errors(printed):
    root = ElementTree.fromstring(printed("junit"))
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert int(root.attrib["tests"]) == 4
    assert int(root.attrib["failures"]) == len(failed) == 2


def test_sarif_names_place_and_rule_of_each_result(printed):
    (only,) = json.loads(printed("sarif"))["runs"]
    rules = only["tool"]["driver"]["rules"]
    for result in only["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        line = place["region"]["startLine"]
        assert line <= len((GOLDEN / place["artifactLocation"]["uri"]).read_text().splitlines())


def test_github_escapes_what_would_end_a_command(printed):
    commands = [line for line in printed("github").splitlines() if line.startswith("::")]
    for command in commands:
        assert re.fullmatch(r"::(error|warning|notice) file=[^:,]+,line=\d+,col=\d+,title=[^:,]+::.+", command)
    assert any("100%25" in command for command in commands)


def test_markdown_keeps_its_columns(printed):
    rows = [line for line in printed("markdown").splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
