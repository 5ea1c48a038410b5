from webhook.kube.finding import Finding, cause, worst


def test_text_names_policy_rule_path_and_the_way_out() -> None:
    finding = Finding("device-overcommit", "status.allocation", "34 of 31", "at most 31", "free 3 first")
    assert finding.text("claim-allocation") == (
        "claim-allocation/device-overcommit: status.allocation: has 34 of 31, needs at most 31; free 3 first"
    )


def test_text_without_a_fix_ends_after_the_need() -> None:
    assert Finding("r", "spec", "x", "y").text("p") == "p/r: spec: has x, needs y"


def test_values_with_line_breaks_and_escapes_stay_on_one_line() -> None:
    text = Finding("r", "spec[a\nb]", "\x1b[31mred\r\n", "y", "f\tg").text("p")
    assert text.isprintable()


def test_cause_is_the_api_servers_own() -> None:
    finding = cause("slicecount-zero", "spec.pool.resourceSliceCount", "FieldValueInvalid", "0", "1 or more")
    assert (finding.origin, finding.error_type, finding.severity) == ("apiserver", "FieldValueInvalid", "error")


def test_worst_is_the_gravest_severity() -> None:
    rows = [Finding("a", "", "", "", severity="info"), Finding("b", "", "", "", severity="warning")]
    assert worst(rows) == "warning"
    assert worst([]) == ""
