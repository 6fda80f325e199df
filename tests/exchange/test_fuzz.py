"""Damaged and forged messages: the benchmark on fuzzing, with fewer cases."""

import runpy
from pathlib import Path

import pytest

from skslot import exchange

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "fuzz_messages.py"


@pytest.mark.slow
def test_damaged_messages_are_read_or_refused():
    fuzz = runpy.run_path(str(SCRIPT))
    outcomes, _, _ = fuzz["fuzz"](2000, memory_every=20)
    assert sum(outcomes.values()) == 2000
    mutations = [mutation.__name__ for mutation in fuzz["MUTATIONS"]]
    assert all(outcomes[name, "refused"] > 20 for name in mutations)
    # those with the right checksum get as far as the values, and some are harmless
    assert outcomes["edit_facts", "read"] + outcomes["edit_arrays", "read"] > 20


@pytest.mark.slow
def test_forged_messages_are_refused_or_do_no_harm():
    fuzz = runpy.run_path(str(SCRIPT))
    outcomes, _ = fuzz["fuzz_forgeries"](1200)
    assert sum(outcomes.values()) == 1200
    kinds = {kind for kind, _ in outcomes}
    public = [getattr(exchange, name) for name in exchange.__all__]
    assert kinds == {each.kind for each in public if getattr(each, "kind", None)}
    assert all(outcomes[kind, each] for kind in kinds for each in ("refused", "used"))
