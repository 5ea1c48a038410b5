import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest


def test_init_makes_what_show_shows(run, tmp_path):
    made = run("certs", "init", "--dir", tmp_path / "c", "--host", "guard.example", "-o", "json")
    shown = run("certs", "show", "--dir", tmp_path / "c", "-o", "json")
    assert made.code == shown.code == 0
    assert json.loads(made.out) == json.loads(shown.out)
    assert json.loads(shown.out)["serving"]["hosts"] == ["guard.example"]
    assert (tmp_path / "c" / "tls.key").stat().st_mode & 0o777 == 0o600


def test_init_keeps_what_is_there_and_says_which_host_it_lacks(run, tmp_path):
    run("certs", "init", "--dir", tmp_path)
    before = (tmp_path / "tls.crt").read_bytes()
    again = run("certs", "init", "--dir", tmp_path, "--host", "guard.example")
    assert again.code == 1
    assert "is not for guard.example" in again.out
    assert (tmp_path / "tls.crt").read_bytes() == before


def test_an_expired_certificate_is_a_problem(run, tmp_path):
    run("certs", "init", "--dir", tmp_path)
    ran = run("certs", "show", "--dir", tmp_path, "--at", "2040-01-01T00:00:00Z")
    assert ran.code == 1
    assert "expired" in ran.out


def test_half_a_pair_is_no_input(run, tmp_path):
    run("certs", "init", "--dir", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=False)
    (tmp_path / "b" / "tls.key").unlink()
    for command in ("init", "show"):
        ran = run("certs", command, "--dir", tmp_path / "b")
        assert ran.code == 2
        assert "tls.key: is missing beside tls.crt" in ran.err


def test_a_host_that_is_none(run, tmp_path):
    ran = run("certs", "init", "--dir", tmp_path / "c", "--host", "not a host")
    assert ran.code == 2
    assert "not a host" in ran.err


def rotated(run, folder, *arguments):
    ran = run("certs", "rotate", "--dir", folder, *arguments, "-o", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_rotate_makes_a_new_serving_certificate_by_the_same_authority(run, tmp_path):
    before = json.loads(run("certs", "init", "--dir", tmp_path, "--host", "guard.example", "-o", "json").out)
    after = rotated(run, tmp_path)
    assert after["done"] == "the serving certificate is new"
    assert after["authorities"] == before["authorities"]
    assert after["serving"]["hosts"] == ["guard.example"]
    assert after["serving"]["sha256"] != before["serving"]["sha256"]


def test_an_authority_is_replaced_in_three_runs(run, tmp_path, monkeypatch):
    monkeypatch.setattr("webhook.cli.rotation.SETTLE", 0.1)
    before = json.loads(run("certs", "init", "--dir", tmp_path, "-o", "json").out)
    said = [rotated(run, tmp_path, "--ca") for _ in range(3)]
    assert [each["phase"] for each in said] == ["announced", "retiring", "steady"]
    assert [len(each["authorities"]) for each in said] == [2, 2, 1]
    assert said[0]["serving"] == before["serving"]
    assert said[1]["serving"] != before["serving"]
    assert said[2]["serving"] == said[1]["serving"]
    assert said[2]["authorities"][0] not in before["authorities"]
    assert "certs inject" in said[0]["next"]
    assert run("certs", "show", "--dir", tmp_path).code == 0


def test_show_tells_that_an_authority_is_being_replaced(run, tmp_path):
    run("certs", "init", "--dir", tmp_path)
    assert "rotation" not in run("certs", "show", "--dir", tmp_path).out
    ran = run("certs", "rotate", "--ca", "--dir", tmp_path)
    assert ran.out.startswith("a new authority is trusted beside the old one; next: ")
    assert "waits for every caBundle to have it" in run("certs", "show", "--dir", tmp_path).out


@pytest.mark.parametrize("more", [[], ["--ca"]])
def test_without_the_key_of_an_authority_there_is_nothing_to_rotate(run, tmp_path, more):
    run("certs", "init", "--dir", tmp_path)
    (tmp_path / "ca.key").unlink()
    ran = run("certs", "rotate", "--dir", tmp_path, *more)
    assert ran.code == 2
    assert "needs" in ran.err


def test_a_folder_that_is_not_there(run, tmp_path):
    for command in ("rotate", "inject", "show"):
        arguments = ["--kubeconfig", kubeconfig(tmp_path)] if command == "inject" else []
        ran = run("certs", command, "--dir", tmp_path / "none", *arguments)
        assert ran.code == 2
        assert "tls.crt: is missing" in ran.err


def kubeconfig(folder):
    """One for a server that is not there."""
    path = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    path.write_text(json.dumps({**config, "clusters": [cluster], "contexts": [context], "users": [user]}))
    return path


@pytest.mark.parametrize(
    "command", [["show"], ["rotate"], ["rotate", "--ca"], ["inject"]], ids=["show", "rotate", "rotate --ca", "inject"]
)
def test_a_cluster_that_cannot_be_reached(run, tmp_path, command):
    ran = run("certs", *command, "--secret", "a/b", "--kubeconfig", kubeconfig(tmp_path))
    assert ran.code == 3
    assert len(ran.err.splitlines()) == 1


def test_a_folder_or_a_secret_but_not_both(run, tmp_path):
    for command in ("show", "rotate", "inject"):
        ran = run("certs", command, "--secret", "a/b", "--dir", tmp_path)
        assert ran.code == 2
        assert "--dir and --secret" in ran.err
        assert run("certs", command, "--secret", "certificates").code == 2


def test_a_server_takes_every_step_in_under_load_and_refuses_nobody(run, tmp_path):
    """Clients connect anew all the time, and trust what was to be trusted before a step, and then what is after it."""
    folder = tmp_path / "certs"
    run("certs", "init", "--dir", folder)
    command = [sys.executable, "-m", "webhook.cli", "serve", "--host=127.0.0.1", "--port=0", "--metrics-port=0"]
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    command += [f"--certs={folder}", f"--cluster={tmp_path / 'cluster'}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = server.stderr
            found = next(filter(None, (re.search(r'"listening on https://127.0.0.1:(\d+)', line) for line in lines)))
            drained = threading.Thread(target=lines.read)
            drained.start()
            _rotate_under_load(run, folder, int(found[1]))
        finally:
            server.terminate()
        drained.join()
    assert server.returncode == 0


def _rotate_under_load(run, folder, port):
    failures, shown, done = [], set(), threading.Event()
    bundle = (folder / "ca.crt").read_text()
    trusted, rounds = [bundle], [0, 0, 0]

    def connect(authorities):
        context = ssl.create_default_context(cadata=authorities)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            return connection.getpeercert(binary_form=True)

    def client(number):
        while not done.is_set():
            for authorities in trusted:
                try:
                    shown.add(connect(authorities))
                except OSError as error:
                    failures.append(repr(error))
            rounds[number] += 1

    def everybody_goes_by(*bundles):
        trusted[:] = bundles
        before = list(rounds)
        while any(now < then + 2 for now, then in zip(rounds, before, strict=True)):
            time.sleep(0.01)

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for each in crowd:
        each.start()
    try:
        for arguments in ([], ["--ca"], ["--ca"], ["--ca"], []):
            before, old = connect(bundle), bundle
            said = rotated(run, folder, *arguments)
            bundle = (folder / "ca.crt").read_text()
            # Who injects does it after the step, and API servers read it one after the other.
            everybody_goes_by(old, bundle)
            everybody_goes_by(bundle)
            if said["done"] in ("the serving certificate is new", "the new authority issues"):
                while connect(bundle) == before:
                    time.sleep(0.01)
    finally:
        done.set()
        for each in crowd:
            each.join()
    assert failures == []
    assert len(shown) == 4
