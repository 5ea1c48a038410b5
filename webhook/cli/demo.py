"""``allocguard demo``: the story of the README on the shipped example cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import out, paint, wrapped
from webhook.cli.options import Where, now

if TYPE_CHECKING:
    from webhook.cli.demo_server import Server

EXAMPLE = Path(__file__).parent / "example"

# What the demo edits: the last review is refused by this policy, for want of room on the node.
EDITED = "claim-allocation.yaml"
NODE_FULL = "06-claim-node-full.yaml"
STORY = "anvil-1"


@click.command(epilog="\b\nExample:\n  allocguard demo")
def demo() -> int:
    """Show the whole story without a cluster: real reviews over verified HTTPS, verdicts, the ledger, live edits.

    Needs a free local port and a temporary folder, which is removed at the end.
    """
    from certs.authority import DEFAULT_HOSTS
    from certs.files import ensure
    from webhook.cli.demo_server import running
    from webhook.store.policies import shipped

    with tempfile.TemporaryDirectory(prefix="allocguard-demo-") as temporary:
        folder = Path(temporary)
        for name, source in (("cluster", EXAMPLE / "cluster"), ("policies", Path(shipped()))):
            shutil.copytree(source, folder / name)
        _title("Certificates")
        ensure(folder / "certs", DEFAULT_HOSTS, now())
        _say(f"An authority and a serving certificate for {', '.join(DEFAULT_HOSTS[:2])}, valid for 90 days.")
        arguments = ["--host", "127.0.0.1", "--port", "0", "--metrics-port", "0"]
        for name in ("certs", "cluster", "policies"):
            arguments += [f"--{name}", str(folder / name)]
        with running(arguments, folder, folder / "certs" / "ca.crt") as server:
            _title("The server")
            _say(
                f"{server.url} serves the shipped policies on the example cluster, and every answer below came from it."
            )
            _reviews(server)
            _ledger(folder / "cluster")
            _explain(folder / "cluster")
            _edits(server, folder / "policies" / EDITED)
    _say("\nThe server has stopped. The same objects and policies work without it:")
    out(paint("  allocguard check my-slices.yaml --cluster my-cluster.yaml", bold=True))
    return 0


def _title(text: str) -> None:
    out(f"\n{paint(text, 'cyan', bold=True)}")


def _say(text: str, indent: str = "") -> None:
    for line in text.split("\n"):
        out("\n".join(wrapped(line, indent, indent)))


def recorded() -> Iterator[tuple[str, str, bytes]]:
    """Name, description and body of each review of the example, in the order of the story."""
    import orjson

    from webhook.kube.documents import Document, load

    for path in sorted((EXAMPLE / "reviews").iterdir()):
        data = path.read_bytes()
        (document,) = load(data, path.name)
        assert isinstance(document, Document)
        yield path.name, data.decode().partition("\n")[0].lstrip("# "), orjson.dumps(document.value)


def _reviews(server: Server) -> None:
    _title("Reviews, as an API server sends them")
    for _, description, body in recorded():
        _tell(description, server.review(body))


def _tell(description: str, response: dict[str, Any]) -> None:
    verdict = paint("allowed", "green", bold=True) if response["allowed"] else paint("denied ", "red", bold=True)
    first, *rest = wrapped(f"{' ' * 9}{description}", "", " " * 9)
    out(f"{verdict}{first[7:]}")
    for line in rest:
        out(line)
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    for text in [*(each["message"] for each in causes), *(f"warning: {each}" for each in response.get("warnings", ()))]:
        for line in wrapped(text, " " * 9, " " * 9):
            out(paint(line, dim=True))


def _ledger(cluster: Path) -> None:
    from webhook.cli.ledger_text import render
    from webhook.ledger import views
    from webhook.ledger.book import Book

    _title(f"The ledger of {STORY}: what the node has, and who is charged")
    snapshot = sources.in_files(Where([str(cluster)])).snapshot
    out(render(views.show(Book(), snapshot, now(), [STORY])))


def _explain(cluster: Path) -> None:
    from webhook.cli.explain import tree
    from webhook.cli.explain_text import render
    from webhook.cli.reviewing import Bench, Write, requests

    _title("Why the last one was denied")
    nothing = Write((), "CREATE", (), "", (), (), "")
    bench = Bench((), Where([str(cluster)]), now())
    for request in requests([str(EXAMPLE / "reviews" / NODE_FULL)], nothing):
        out(render(tree(bench.verdict(request, "validate"))))


def _edits(server: Server, policy: Path) -> None:
    body = next(body for name, _, body in recorded() if name == NODE_FULL)
    good = policy.read_text()
    _title("A policy edited while the server runs")
    seen = server.policies()
    policy.write_text(good.replace("\n  action: Deny\n", "\n  action: Warn\n"))
    _say(f"{EDITED}: `action: Deny` becomes `action: Warn`. The next verdict on the same review:")
    seen = server.after(seen)
    _tell("`batch` again", server.review(body))
    _say("Now a typo: `claim.fitProblems` becomes `claim.fitProblem`. The server refuses the edit and says where:")
    policy.write_text(good.replace("claim.fitProblems", "claim.fitProblem"))
    told = server.after(seen).partition("refused: ")[2]
    _say(told.replace(f"{policy.parent}/", ""), "         ")
    _tell("`batch` again: the last good set goes on serving", server.review(body))
