import re


def test_the_demo_tells_its_story_and_leaves_nothing(spawn, tmp_path):
    ran = spawn("demo", TMPDIR=str(tmp_path))
    assert ran.code == 0, ran.err
    assert ran.err == ""
    told = re.sub(r"\s+", " ", ran.out)
    order = [
        "https://localhost:",
        "slice-mappings/key-unknown",
        "claim-allocation/pool-incomplete",
        "claim-allocation/driver-held",
        "allowed The scheduler gives `preview`",
        "claim-allocation/node-overcommit",
        "The ledger of anvil-1",
        "cpu: 30 allocatable - 12 pods - 8 claims - 12 this claim - 1 this pod = -3",
        "allowed `batch` again warning: claim-allocation/node-overcommit",
        "has no field `fitProblem` in Claim; did you mean `fitProblems`?",
        "allowed `batch` again: the last good set goes on serving",
        "The server has stopped.",
    ]
    places = [told.index(part) for part in order]
    assert places == sorted(places)
    assert [each for each in ran.out.split() if each in ("allowed", "denied")][:6] == [
        "allowed", "denied", "denied", "denied", "allowed", "denied"
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []
