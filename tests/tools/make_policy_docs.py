"""Writes the generated part of docs/policies.md anew: python tests/tools/make_policy_docs.py."""

from pathlib import Path

from webhook.policy.reference import renewed

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"

if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
