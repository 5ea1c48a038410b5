import json
import shutil


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
