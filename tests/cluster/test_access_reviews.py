import asyncio

import pytest

from webhook.cluster.access_reviews import (
    KEPT,
    MOST,
    PATH,
    Access,
    AccessReviews,
    Answer,
    Subject,
    account,
    binding_access,
    driver_access,
    writer,
)
from webhook.cluster.api import ApiError, Unreachable
from webhook.kube.admission import raw_request, read_request

PLUGIN = account("gpu-system", "gpu-plugin")
PATCH = driver_access("associated-node:patch", "gpu.example.com", "team")


class Server:
    """Answers reviews with a status, or fails; tells what it was asked."""

    def __init__(self, status=None):
        self.status = {"allowed": True, "reason": "RBAC: allowed"} if status is None else status
        self.error = None
        self.asked = []
        self.meanwhile = lambda: None

    async def create(self, path, obj, **params):
        assert (path, params) == (PATH, {})
        self.asked.append(obj["spec"])
        if self.error is not None:
            raise self.error
        self.meanwhile()
        return {"status": self.status}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reviews(server, clock):
    return AccessReviews(server, clock)


def ask(reviews, subject=PLUGIN, access=PATCH):
    return asyncio.run(reviews.ask(subject, access))


def test_a_driver_is_asked_about_by_its_name_in_the_claims_namespace(reviews, server):
    assert ask(reviews) == Answer(True, "RBAC: allowed")
    assert server.asked == [
        {
            "user": "system:serviceaccount:gpu-system:gpu-plugin",
            "groups": ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:gpu-system"],
            "resourceAttributes": {
                "verb": "associated-node:patch",
                "group": "resource.k8s.io",
                "resource": "resourceclaims",
                "subresource": "driver",
                "namespace": "team",
                "name": "gpu.example.com",
            },
        }
    ]


def test_binding_is_asked_about_without_namespace_and_name_whatever_the_claim(reviews, server):
    ask(reviews, access=binding_access("update"))
    [asked] = server.asked
    attributes = asked["resourceAttributes"]
    assert (attributes["subresource"], attributes["namespace"], attributes["name"]) == ("binding", "", "")


def test_a_writer_is_asked_about_as_authentication_has_it(reviews, server):
    raw = raw_request("UPDATE", {"kind": "ResourceClaim"}, user="u", groups=("b", "a"), extra={"k": ["2", "1"]})
    raw["userInfo"]["uid"] = "uid-1"
    ask(reviews, writer(read_request(raw)))
    [asked] = server.asked
    assert {name: asked[name] for name in ("user", "groups", "uid", "extra")} == {
        "user": "u",
        "groups": ["a", "b"],
        "uid": "uid-1",
        "extra": {"k": ["2", "1"]},
    }


def test_an_answer_counts_for_ten_seconds_and_no_longer(reviews, server, clock):
    ask(reviews)
    server.status = {"allowed": False}
    clock.now = KEPT - 0.01
    assert ask(reviews).allowed
    clock.now = KEPT
    assert not ask(reviews).allowed
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "other",
    [
        (Subject(PLUGIN.user, PLUGIN.groups, "another-uid"), PATCH),
        (Subject(PLUGIN.user, (*PLUGIN.groups, "x")), PATCH),
        (Subject(PLUGIN.user, PLUGIN.groups, extra=(("k", ("v",)),)), PATCH),
        (PLUGIN, driver_access("associated-node:update", "gpu.example.com", "team")),
        (PLUGIN, driver_access("associated-node:patch", "nic.example.com", "team")),
        (PLUGIN, driver_access("associated-node:patch", "gpu.example.com", "other")),
        (PLUGIN, Access("associated-node:patch", "resourceclaims/driver", "", "team", "gpu.example.com")),
    ],
)
def test_one_answer_is_not_given_to_another_question(reviews, server, other):
    ask(reviews)
    ask(reviews, *other)
    assert len(server.asked) == 2


@pytest.mark.parametrize("error", [ApiError(403, "Forbidden", "no"), Unreachable("timed out")])
def test_errors_are_told_and_never_remembered(reviews, server, error):
    server.error = error
    with pytest.raises(type(error)):
        ask(reviews)
    server.error = None
    assert ask(reviews).allowed


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ({"allowed": False, "reason": ""}, Answer(False)),
        ({"allowed": True, "denied": True, "reason": "no\nway"}, Answer(False, "no way")),
        ({"allowed": True, "evaluationError": "role\n x is gone"}, Answer(False, "", "role x is gone")),
        ({"allowed": "true"}, Answer(False)),
        ({}, Answer(False)),
        ("none", Answer(False)),
    ],
)
def test_whatever_is_no_plain_yes_is_no(reviews, server, status, answer):
    server.status = status
    assert ask(reviews) == answer


def test_an_answer_with_a_problem_is_not_remembered(reviews, server):
    server.status = {"allowed": False, "evaluationError": "role x is gone"}
    ask(reviews)
    ask(reviews)
    assert len(server.asked) == 2


def test_all_is_asked_anew_once_a_role_has_changed_even_what_was_just_under_way(reviews, server):
    ask(reviews)
    reviews.forget()
    server.meanwhile = reviews.forget
    ask(reviews)
    server.meanwhile = lambda: None
    ask(reviews)
    assert len(server.asked) == 3


def test_only_so_many_answers_are_kept_those_that_were_used_last(reviews, server):
    async def many():
        for number in range(MOST + 1):
            await reviews.ask(PLUGIN, driver_access("associated-node:patch", f"d{number}"))
            await reviews.ask(PLUGIN, PATCH)

    asyncio.run(many())
    assert len(server.asked) == MOST + 2
    ask(reviews)
    assert len(server.asked) == MOST + 2
    ask(reviews, access=driver_access("associated-node:patch", "d0"))
    assert len(server.asked) == MOST + 3


@pytest.mark.parametrize(
    ("access", "shown"),
    [
        (PATCH, "associated-node:patch resourceclaims/driver team/gpu.example.com"),
        (binding_access("patch"), "patch resourceclaims/binding"),
        (Access("create", "pods", "", "team"), "create pods in team"),
    ],
)
def test_a_question_is_shown_in_a_few_words(access, shown):
    assert str(access) == shown
