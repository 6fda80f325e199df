"""Damaged messages: the benchmark on fuzzing, with fewer cases."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "fuzz_messages.py"


def test_damaged_messages_are_read_or_refused():
    fuzz = runpy.run_path(str(SCRIPT))
    outcomes, _, _ = fuzz["fuzz"](2000, memory_every=20)
    assert sum(outcomes.values()) == 2000
    mutations = [mutation.__name__ for mutation in fuzz["MUTATIONS"]]
    assert all(outcomes[name, "refused"] > 20 for name in mutations)
    # those with the right checksum get as far as the values, and some are harmless
    assert outcomes["edit_facts", "read"] + outcomes["edit_arrays", "read"] > 20
