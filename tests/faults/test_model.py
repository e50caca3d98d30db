"""A model of the store, held against two processes that share a folder: no sequence of changes makes them differ."""

from itertools import count

import pytest
from faults.crowd import Other, an_id, some
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

pytestmark = pytest.mark.long

SLUGS = st.sampled_from(["a", "A", "é"])
VERSIONS = st.sampled_from(["1", "1.0"])
WHICH = st.integers(0, 1)


def test_two_processes_do_what_the_model_does(tmp_path):
    others = [Other(tmp_path / "0"), Other(tmp_path / "0")]
    ids, numbers = [an_id() for _ in range(3)], count(1)

    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.bundles, self.tools = {}, {}
            folder = tmp_path / str(next(numbers))
            for other in others:
                other("open", str(folder))

        @rule(who=WHICH, which=st.integers(0, 2), text=st.sampled_from(["x", "y"]))
        def put_bundle(self, who, which, text):
            made = others[who]("put_bundle", ids[which], {"text": text})
            assert made[1] == (ids[which] not in self.bundles)
            self.bundles[ids[which]] = {"text": text, "on": True, "deleted": False}

        @rule(who=WHICH, which=st.integers(0, 2), on=st.booleans())
        def patch_bundle(self, who, which, on):
            given = others[who]("patch_bundle", ids[which], on)
            found = self.bundles.get(ids[which])
            if found is None or found["deleted"]:
                assert given == ("NotFoundError" if found is None else "ForbiddenError")
            else:
                assert given["isEnabled"] is on
                found["on"] = on

        @rule(who=WHICH, which=st.integers(0, 2))
        def delete_bundle(self, who, which):
            given = others[who]("delete_bundle", ids[which])
            found = self.bundles.get(ids[which])
            if found is None:
                assert given == "NotFoundError"
            elif any(id == ids[which] for id, _, _ in self.tools):
                assert given == "ConflictError"
            else:
                assert given is None
                found["deleted"] = True

        @rule(who=WHICH, which=st.integers(0, 2), slug=SLUGS, version=VERSIONS, text=st.sampled_from(["x", "y"]))
        def put_tool(self, who, which, slug, version, text):
            given = others[who]("put_tool", ids[which], slug, version, text)
            refused = self.refusal(which)
            if refused or (ids[which], slug, version) in self.tools:
                assert given == (refused or "ConflictError")
            else:
                assert given["description"] == text
                self.tools[ids[which], slug, version] = {"text": text, "on": True}

        @rule(who=WHICH, which=st.integers(0, 2), slug=SLUGS, version=VERSIONS, on=st.booleans())
        def patch_tool(self, who, which, slug, version, on):
            given = others[who]("patch_tool", ids[which], slug, version, on)
            refused, found = self.refusal(which), self.tools.get((ids[which], slug, version))
            if refused or found is None:
                assert given == (refused or "NotFoundError")
            else:
                assert given["isEnabled"] is on
                found["on"] = on

        @rule(who=WHICH, which=st.integers(0, 2), slug=SLUGS, version=VERSIONS)
        def delete_tool(self, who, which, slug, version):
            given = others[who]("delete_tool", ids[which], slug, version)
            known = self.tools.pop((ids[which], slug, version), None)
            assert given == (None if known else "NotFoundError")

        @rule(who=WHICH)
        def look(self, who):
            others[who]("sync")
            assert others[who]("mistakes") == []

        def refusal(self, which):
            found = self.bundles.get(ids[which])
            if found is None:
                return "NotFoundError"
            return None if found["on"] and not found["deleted"] else "ForbiddenError"

        @invariant()
        def both_show_it(self):
            bundles = {id: (one["text"], one["on"], one["deleted"]) for id, one in self.bundles.items()}
            for other in others:
                shown = other("bundles")
                assert {
                    one["id"]: (one["displayName"], one["isEnabled"], one["softDeletedAt"] is not None) for one in shown
                } == bundles
                shown = other("tools")
                assert {
                    (one["bundleID"], one["slug"], one["version"]): {"text": one["description"], "on": one["isEnabled"]}
                    for one in shown
                } == self.tools

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=some(6, 200),
                stateful_step_count=some(20, 50),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        for other in others:
            other.close()
