"""JSON as Go writes it, and what a review still tells of how a blob is stored."""

import json

import pytest

from webhook.facts.canonical_json import blob_problems, canonical, is_canonical

# Which of these a strategic merge patch by somebody else leaves alone was asked of API servers of 1.36 and 1.37:
# tests/e2e/test_writer_traps.py asks again.
KEPT = [
    "{}",
    '{"a":1e+21}',
    '{"a":1e-7}',
    '{"a":5e-324}',
    '{"a":0.000001}',
    '{"a":0.1}',
    '{"a":123456789.123}',
    '{"a":100000000000000000000}',
    '{"a":9223372036854775807}',
    '{"a":-9223372036854775808}',
    '{"a":"é"}',
    '{"a":"😀"}',
    r'{"a":"\u003c"}',
    r'{"a":"\u2028"}',
    r'{"a":"\b\u001f\\\""}',
    '{"":{},"B":[],"a":null,"é":[true,false]}',
    '{"a":{"b":1,"c":2}}',
]
CHANGED = {
    '{"b": 1}': '{"b":1}',
    '{"b":1,"a":2}': '{"a":2,"b":1}',
    '{"a":{"c":1,"b":2}}': '{"a":{"b":2,"c":1}}',
    '{"a":1,"a":2}': '{"a":2}',
    '{"a":1.0}': '{"a":1}',
    '{"a":1.50}': '{"a":1.5}',
    '{"a":1e21}': '{"a":1e+21}',
    '{"a":1E5}': '{"a":100000}',
    '{"a":1e2}': '{"a":100}',
    '{"a":1e-07}': '{"a":1e-7}',
    '{"a":-0}': '{"a":0}',
    '{"a":-0.0}': '{"a":0}',
    '{"a":12345678901234567890}': '{"a":12345678901234567000}',
    '{"a":9223372036854775808}': '{"a":9223372036854776000}',
    r'{"a":"\u00e9"}': '{"a":"é"}',
    r'{"a":"\u003C"}': r'{"a":"\u003c"}',
    '{"a":"<"}': r'{"a":"\u003c"}',
    '{"a":"\u2028"}': r'{"a":"\u2028"}',
    r'{"a":"\/"}': '{"a":"/"}',
    r'{"a":"\u0008\u007f"}': '{"a":"\\b\x7f"}',
    r'{"a":"\ud800"}': '{"a":"\ufffd"}',
    r'{"a":"\ud83d\ude00\ud800x"}': '{"a":"😀\ufffdx"}',
    r'{"\ud800":1}': '{"\ufffd":1}',
}


@pytest.mark.parametrize("text", KEPT)
def test_what_go_writes_as_it_is(text):
    assert canonical(text) == text
    assert is_canonical(text)


@pytest.mark.parametrize("text", CHANGED)
def test_what_go_writes_otherwise(text):
    assert canonical(text) == CHANGED[text]
    assert not is_canonical(text)
    assert is_canonical(canonical(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":1e400}', "1e400, which is no number of 64 bits"),
        ('{"a":%s}' % ("9" * 400), "which is no number of 64 bits"),
        ('{"a":NaN}', "has NaN"),
        ('{"a":%s}' % ("[" * 300 + "]" * 300), "nested too deep"),
        ("[" * 100_000, "nested too deep"),
        ("", "Expecting value"),
        ('{"a"', "Expecting"),
    ],
)
def test_what_has_no_form_is_told(text, why):
    with pytest.raises(ValueError, match=why):
        canonical(text)
    assert not is_canonical(text)


PARAMETERS = '"opaque":{"driver":"gpu.example.com","parameters":PARAMETERS}'


def sent(new, old="null", kind="ResourceClaim"):
    """A review as the API server writes it."""
    head = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"kind":"'
    return f'{head}{kind}"}},"operation":"UPDATE","object":{new},"oldObject":{old},"dryRun":false}}}}\n'.encode()


def reported(*blobs):
    devices = [f'{{"driver":"d{n}.example","pool":"n1","device":"g","data":{b}}}' for n, b in enumerate(blobs)]
    return f'{{"metadata":{{"name":"c"}},"status":{{"devices":[{",".join(devices)}]}}}}'


def test_data_is_judged_where_it_is_stored():
    (problem,) = blob_problems(sent(reported('{"a":1}', '{"b":1,"a":1.0}'), reported('{"a":1}')))
    assert (problem.rule, problem.severity) == ("blob-not-canonical", "warning")
    assert problem.path == "status.devices[1].data"
    assert problem.message == 'has {"b":1,"a":1.0}, needs Go\'s own form {"a":1,"b":1}'
    assert "(422, naming d1.example)" in problem.fix


@pytest.mark.parametrize("text", CHANGED)
def test_whatever_go_writes_otherwise_is_told(text):
    (problem,) = blob_problems(sent(reported(text)))
    assert problem.path == "status.devices[0].data"


@pytest.mark.parametrize("text", KEPT)
def test_what_go_writes_as_it_is_is_not_told(text):
    assert blob_problems(sent(reported(text))) == []


def test_half_a_surrogate_pair_hides_no_other_blob():
    odd, even = r'{"a":"@@u@ud800@ud83d@ude00"}'.replace("@", chr(92)), '{"a":"@@ud800"}'.replace("@", chr(92))
    problems = blob_problems(sent(reported(odd, even, '{"b":1,"a":2}')))
    assert [problem.path for problem in problems] == ["status.devices[0].data", "status.devices[2].data"]


def test_data_that_stays_is_not_told_again():
    old = reported('{"b":1,"a":1}', '{"c":1,"b":1}')
    assert len(blob_problems(sent(old))) == 2
    assert blob_problems(sent(old, old)) == []
    (changed,) = blob_problems(sent(reported('{"b":1,"a":1}', '{"c":2,"b":1}'), old))
    assert changed.path == "status.devices[1].data"


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ('{"spec":{"config":[{CONFIG}]}}', "spec.config[0]"),
        ('{"spec":{"devices":{"config":[null,{CONFIG}]}}}', "spec.devices.config[1]"),
        ('{"spec":{"spec":{"devices":{"config":[{CONFIG}]}}}}', "spec.spec.devices.config[0]"),
        ('{"status":{"allocation":{"devices":{"config":[{CONFIG}]}}}}', "status.allocation.devices.config[0]"),
    ],
)
def test_parameters_are_found_wherever_they_are(obj, path):
    def judge(text):
        return blob_problems(sent(obj.replace("CONFIG", PARAMETERS.replace("PARAMETERS", text))))

    (problem,) = judge(r'{"kind":"\u00e9"}')
    assert problem.path == f"{path}.opaque.parameters"
    assert "(422, immutable)" in problem.fix
    assert judge('{"kind":"é"}') == []


def test_an_allocation_stores_what_the_claim_asks_for_anew():
    config = "{" + PARAMETERS.replace("PARAMETERS", '{"b":1,"a":2}') + "}"
    spec = f'"spec":{{"devices":{{"config":[{config}]}}}}'
    allocated = f'{{{spec},"status":{{"allocation":{{"devices":{{"config":[{config}]}}}}}}}}'
    (problem,) = blob_problems(sent(allocated, f"{{{spec}}}"))
    assert problem.path == "status.allocation.devices.config[0].opaque.parameters"


def test_a_long_blob_is_shown_where_it_differs():
    text = f'{{"{"a" * 500}":1,"z":1.0,"{"zz" * 500}":2}}'
    (problem,) = blob_problems(sent(reported(text)))
    assert '":1,"z":1.0,"zz' in problem.has
    assert '":1,"z":1,"zz' in problem.needs
    assert problem.has.startswith("...a")
    assert max(len(problem.has), len(problem.needs)) < 100


def test_a_blob_that_nobody_can_write_again():
    (problem,) = blob_problems(sent(reported('{"a":1e400}')))
    assert "1e400" in problem.has
    assert problem.needs == "JSON that Go can read"


def test_a_review_that_somebody_wrote_again_says_nothing():
    """How a recorded review was written says nothing about what is stored."""
    data = sent(reported('{"b":1,"a":1}'))
    assert blob_problems(json.dumps(json.loads(data), indent=1).encode()) == []
    assert blob_problems(b"") == []


@pytest.mark.parametrize(
    "obj", ["null", "7", '{"status":7}', '{"status":{"devices":{}}}', '{"spec":[]}', "{", '"\xff"']
)
def test_what_no_api_server_sends_has_no_blobs(obj):
    assert blob_problems(sent(obj).replace(b'"dryRun":false', b'"data":1')) == []
