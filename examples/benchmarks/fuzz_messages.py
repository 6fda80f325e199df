"""Damaged messages are refused by one kind of error, in little time and memory.

Run with::

    python examples/benchmarks/fuzz_messages.py --cases 200000

Messages of all kinds and precisions are changed at random: bits flipped, cut off,
spliced, and, with the checksum made right again so that deeper checks are reached,
headers and arrays edited. Each must be refused with a ``MessageError``, or be read: as
it was, where the checksum was not made right again. On every fiftieth case the memory
it takes is measured as well.
"""

import argparse
import json
import os
import resource
import time
import tracemalloc
from collections import Counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from safetensors.numpy import load, save

from skslot._linalg import pack_triangle
from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMeans,
    ClassMixtures,
    ClassRows,
    ClassStatistics,
    ClientStatistics,
    ColumnStatistics,
    CurvedHead,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    MessageError,
    MixedEffectsModel,
    load_message,
)
from skslot.exchange._wire import WIRE_DTYPES, checksum

# Features of the messages whose memory is measured.
LARGE = 256
# Objects of Python that any message takes, however small.
FIXED_MEMORY = 32 * 1024
SLOWEST = 5.0

NASTY = [
    None, True, False, 0, 1, -1, 2, 3, 10**6, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5,
    1e-320, 1e308, float("nan"), float("inf"), "", "a", "float16", "float64", "1", "2",
    "3", "diag", "full", "\ud800", "x" * 1000, [], {}, [[]], [0], ["a", "a"], ["a", 1],
    [1, True], [None], [1.5, 2.5], {"mean": 10**9}, {"mean": 1000}, {"mean": "1"},
]  # fmt: skip


def examples(n_features, seed=0):
    """A message of each kind, with some variants."""
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal(n_features)
    rows = rng.standard_normal((3 * n_features, n_features))
    covariance = rows.T @ rows / len(rows)
    triangle, counts = pack_triangle(covariance), np.array([12, 0, 30], np.int32)
    means = np.array([mean, 0 * mean, -mean])
    shrinkage, none = np.array([0.25]), np.empty(0)
    components, weights = np.array([2, 1], np.int32), np.array([0.25, 0.75, 1.0])
    flat = {"spherical": np.ones((3, 1)), "diag": np.ones((3, n_features))}
    flat["full"] = np.array([triangle] * 3)
    flat["lowrank"] = np.ones((3, 2 * n_features + 1))
    mixtures = [
        ClassMixtures(
            [0, 7], kind, counts[::2], components, weights, means, covariances, *rest
        )
        for kind, covariances in flat.items()
        for rest in [(none, none, "B"), (triangle, shrinkage, 5, "encoder")]
    ]
    effects = (means, means / 2, triangle, np.array([0.5, 4.0, 0.25]))
    shares, facts = np.array([0.5, 0.2, 0.3]), (0.3, True, False, ["A", "B"])
    mixed = [
        MixedEffectsModel(
            ["a", "b", "c"], counts + 1, np.array([2, 1, 1]), *effects, shares, *rest
        )
        for rest in [(triangle, *facts, "encoder"), (none, *facts)]
    ]
    chosen = components, means, np.array([6.0, 6.0, 30.0])
    soft = np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]])
    of_rows = [
        ClassRows([0, 7], "kmeans", counts[::2], *chosen, none, none, none, none, "B"),
        ClassRows(
            ["a", "b"], "herding", counts[::2], *chosen, soft, means[:2], triangle,
            shrinkage, 5, "encoder",
        ),
    ]  # fmt: skip
    fisher, by_class = np.ones((2, n_features + 1)), np.array([[1, -1], [-1, 1]]) / 4
    curved = [
        CurvedHead([0, 7], kind, counts[::2], means[:2], mean[:2], *rest)
        for kind, rest in {
            "none": (none, none, none, none, none, "B"),
            "gram": (none, none, means[::2], triangle, none, "B"),
            "diag": (none, fisher, means[::2], none, none, 5, "encoder"),
            "kfac": (by_class, none, means[::2], triangle, shrinkage, "B"),
        }.items()
    ]
    head = {"weight": means, "bias": mean[:3], "steps": np.array(3)}
    return [
        ClientStatistics(50, mean, triangle, 0.1, "A", "encoder"),
        ClientStatistics(50, 1e9 * mean, 1e18 * triangle, 0.1, "far"),
        AlignmentReference(mean, triangle, 7, 1e-9, 0.4),
        ClassStatistics(["a", "b", "c"], counts, means, triangle, shrinkage, "A"),
        ClassStatistics([1.5, 2.5, 4.0], counts, means, triangle),
        ClassMeans(["a", "c"], counts[::2], means[::2], "A", "encoder"),
        *mixtures,
        *mixed,
        *of_rows,
        *curved,
        LinearModel(["x", "y"], mean[None], np.array([0.5]), "A"),
        AlignedModel(["x", "y"], mean[None], mean[:1], mean, triangle, 7, 1e-9, 0.4),
        FeatureSummary(30, mean, 1.5, "Zürich"),
        ColumnStatistics(30, np.full(n_features, 12), mean, mean**2, "Zürich"),
        FeatureScale(mean, 0.5),
        HeadWeights(["x", "y", "z"], counts, head, np.ones(2), n_features, 2, "B"),
    ]


# ------------------------------------------------------------------------ mutations


def flip_bits(rng, data, _):
    data = bytearray(data)
    for position in rng.integers(8 * len(data), size=rng.integers(1, 9)):
        data[position // 8] ^= 1 << (position % 8)
    return bytes(data)


def cut_off(rng, data, _):
    return data[: rng.integers(len(data))]


def append(rng, data, other):
    return data + other[: rng.integers(1, len(other))]


def splice(rng, data, other):
    start, stop = sorted(rng.integers(len(data), size=2))
    first, last = sorted(rng.integers(len(other), size=2))
    return data[:start] + other[first:last] + data[stop:]


def overwrite(rng, data, _):
    start = rng.integers(len(data))
    noise = rng.bytes(rng.integers(1, 32))
    return data[:start] + noise + data[start + len(noise) :]


def edit_layout(rng, data, _):
    """Change names, types, shapes and places of arrays."""
    length = int.from_bytes(data[:8], "little")
    layout = json.loads(data[8 : 8 + length])
    name = rng.choice([key for key in layout if key != "__metadata__"])
    entry, huge = layout[name], int(rng.choice([0, 1, 2, 10**6, 2**40, 2**62, 2**64]))
    match rng.integers(5):
        case 0:
            entry["shape"] = [huge, *entry["shape"]][: rng.integers(4)]
        case 1:
            entry["data_offsets"] = [0, huge]
        case 2:
            entry["dtype"] = str(rng.choice(["BF16", "I8", "BOOL", "F8_E4M3", "C64"]))
        case 3:
            layout["stranger"] = {**entry, "shape": [0, huge], "data_offsets": [0, 0]}
        case 4:
            layout[str(rng.choice(["counts", "client", "kind", ""]))] = layout.pop(name)
    text = json.dumps(layout).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def edit_facts(rng, data, _):
    """Change the header, and make the checksum right again."""
    header, tensors = _open(data)
    for _ in range(rng.integers(1, 3)):
        key = rng.choice([key for key in header if key != "checksum"])
        match rng.integers(4):
            case 0:
                header.pop(key)
                header[""] = 0
            case 1:
                header[str(rng.choice(["mean", "counts", "extra"]))] = header[key]
            case _:
                header[key] = NASTY[rng.integers(len(NASTY))]
    if rng.random() < 0.02:
        header["client"] = json.loads("[" * 900 + "]" * 900)
    return _close(header, tensors)


def edit_arrays(rng, data, _):
    """Change numbers and shapes of an array, and make the checksum right again."""
    header, tensors = _open(data)
    name = rng.choice(sorted(tensors))
    array = tensors[name].copy()
    match rng.integers(7):
        case 0:
            array = array.reshape(-1)[: rng.integers(array.size + 1)]
        case 1:
            array = array[None] if rng.random() < 0.5 else array.reshape(-1)
        case 2:
            with np.errstate(all="ignore"):
                array = array.astype(rng.choice(["f8", "f4", "f2", "i4", "u1", "?"]))
        case 3:
            tensors.pop(name)
            name = str(rng.choice(["mean", "weights/a", "covariance", "stranger"]))
        case 4:
            array = np.negative(array) if array.dtype != bool else array
        case _ if array.size:
            values = [0, -1, 1, 100] + [np.nan, np.inf, 6e4] * (array.dtype.kind == "f")
            spots = rng.integers(array.size, size=rng.integers(1, 4))
            array.reshape(-1)[spots] = rng.choice(values)
    tensors[name] = np.ascontiguousarray(array)
    return _close(header, tensors)


MUTATIONS = [
    flip_bits,
    cut_off,
    append,
    splice,
    overwrite,
    edit_layout,
    edit_facts,
    edit_arrays,
]
RESEALED = [edit_facts, edit_arrays]


def _open(data):
    length = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + length])["__metadata__"]["skslot"]
    return json.loads(text), load(data)


def _close(header, tensors):
    header["checksum"] = checksum(header, tensors)
    return save(tensors, metadata={"skslot": json.dumps(header)})


# ---------------------------------------------------------------------------- cases


def outcome(data, original):
    """What becomes of a message; anything but MessageError is an error here.

    Without a new checksum it must be ``original``, if it is read at all.
    """
    try:
        message = load_message(data)
    except MessageError as error:
        str(error)
        return "refused"
    message.describe()
    assert original is None or load_message(original) == message
    assert load_message(message.to_bytes("float64")) == message
    return "read"


def peak_memory(data):
    """Most memory that reading a message takes, in bytes."""
    tracemalloc.start()
    try:
        load_message(data)
    except MessageError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def fuzz(n_cases, seed=0, memory_every=50, progress=None):
    """Outcomes by mutation, slowest case in s, and largest memory ratio."""
    rng = np.random.default_rng(seed)
    small = [m.to_bytes(d) for m in examples(4) for d in WIRE_DTYPES]
    large = [m.to_bytes(d) for m in examples(LARGE) for d in WIRE_DTYPES]
    outcomes, slowest, memory = Counter(), 0.0, 0.0
    for case in range(n_cases):
        is_measured = memory_every and case % memory_every == 0
        pool = large if is_measured else small
        source, other = (pool[index] for index in rng.integers(len(pool), size=2))
        mutate = MUTATIONS[rng.integers(len(MUTATIONS))]
        data = mutate(rng, source, other)
        start = time.perf_counter()
        try:
            original = None if mutate in RESEALED else source
            outcomes[mutate.__name__, outcome(data, original)] += 1
        except BaseException as error:
            error.add_note(f"case {case} of seed {seed}, {mutate.__name__}: {data!r}")
            raise
        slowest = max(slowest, time.perf_counter() - start)
        if is_measured:
            allowed = 3 * len(data) + FIXED_MEMORY
            memory = max(memory, peak_memory(data) / allowed)
        if progress and (case + 1) % 10_000 == 0:
            progress(case + 1)
    assert slowest < SLOWEST, f"a case took {slowest:.1f} s"
    assert memory <= 1.0, f"a case took {memory:.2f} times the memory it may"
    return outcomes, slowest, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    outcomes, slowest, memory = fuzz(
        arguments.cases,
        arguments.seed,
        progress=lambda n: print(f"{n} cases, {time.perf_counter() - start:.0f} s"),
    )
    print(f"{'mutation':<14}{'refused':>9}{'read':>9}")
    for name in (mutation.__name__ for mutation in MUTATIONS):
        print(f"{name:<14}{outcomes[name, 'refused']:>9}{outcomes[name, 'read']:>9}")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{sum(outcomes.values())} cases, no error but MessageError; slowest "
        f"{1000 * slowest:.0f} ms; memory at most {memory:.2f} of what is allowed "
        f"(3 times the message); process {rss:.0f} MB"
    )


if __name__ == "__main__":
    main()
