import json
import ssl
import subprocess
import sys
import urllib.request

import pytest


def test_serve_answers_over_https_and_ends_with_0(example, tmp_path):
    command = [
        sys.executable,
        "-m",
        "webhook.cli",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--metrics-port",
        "0",
    ]
    command += ["--cluster", str(example / "cluster"), "--certs", str(tmp_path / "certs")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        events = map(json.loads, process.stderr)
        url = next(each["url"] for each in events if each["event"].startswith("listening on"))
        context = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))
        with urllib.request.urlopen(f"{url}/readyz?verbose", context=context, timeout=30) as answer:
            assert b"[+]policies ok" in answer.read()
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cluster", "nowhere"], "nowhere: cannot be read: no such file or directory"),
        (["--policies", "nowhere"], "nowhere: cannot be read: no such file or directory"),
        (["--certs", "half"], "is missing beside"),
        (["--host", "203.0.113.1", "--port", "0"], "203.0.113.1:0: "),
    ],
)
def test_what_keeps_it_from_starting_is_exit_code_2(spawn, example, tmp_path, monkeypatch, options, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "tls.key").write_text("")
    given = dict(zip(options[::2], options[1::2], strict=True))
    defaults = {"--cluster": example / "cluster", "--certs": tmp_path / "certs", "--metrics-port": "0", "--port": "0"}
    ran = spawn("serve", *(word for pair in {**defaults, **given}.items() for word in pair))
    assert ran.code == 2
    assert told in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err
