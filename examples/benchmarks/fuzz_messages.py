"""Damaged messages are refused by one kind of error, in little time and memory.

Run with::

    python examples/benchmarks/fuzz_messages.py --cases 200000 --forged 200000

Messages of all kinds and precisions are changed at random: bits flipped, cut off,
spliced, and, with the checksum made right again so that deeper checks are reached,
headers and arrays edited. Each must be refused with a ``MessageError``, or be read: as
it was, where the checksum was not made right again. On every fiftieth case the memory
it takes is measured as well.

Then messages are forged: well-formed, with the right checksum, and with values of the
forger's choice in their arrays and facts. A server gets each beside an honest one. It
must refuse it with a ``MessageError``, or come to a finite result (and where that is
the mean of all rows, to the right one) in less than a second. Time is that of the
process. A mixture with a claim of rows that is too large to be drawn is refused; others
are drawn five times a class, as the time for more is what the user asks for.
"""

import argparse
import json
import os
import resource
import time
import tracemalloc
import warnings
from collections import Counter

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from safetensors.numpy import load, save

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FederatedScaler,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsClassifier,
)
from skslot._utils import pack_triangle
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
    Message,
    MessageError,
    MixedEffectsModel,
    load_message,
)
from skslot.exchange._wire import WIRE_DTYPES, checksum

# Features of the messages whose memory is measured.
LARGE = 256
# Objects of Python that any message takes, however small.
FIXED_MEMORY = 32 * 1024
# Memory in bytes of the message: a triangle in float16 becomes a full matrix in
# float64, eight times its size, and the checks need a few of these.
MOST_TIMES = 36
SLOWEST = 5.0
SLOWEST_STEP = 1.0

NASTY = [
    None, True, False, 0, 1, -1, 2, 3, 10**6, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5,
    1e-320, 1e308, float("nan"), float("inf"), "", "a", "float16", "float64", "1", "2",
    "3", "diag", "full", "\ud800", "x" * 1000, [], {}, [[]], [0], ["a", "a"], ["a", 1],
    [1, True], [None], [1.5, 2.5], {"mean": 10**9}, {"mean": 1000}, {"mean": "1"},
]  # fmt: skip


def scatter_of(counts, means):
    """Covariance that rows have at least, if groups of them have these means."""
    shares = counts / counts.sum()
    centred = means - shares @ means
    return (centred.T * shares) @ centred


def examples(n_features, seed=0):
    """A message of each kind, with some variants."""
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal(n_features)
    rows = rng.standard_normal((3 * n_features, n_features))
    covariance = rows.T @ rows / len(rows)
    counts = np.array([12, 0, 30], np.int32)
    means = np.array([mean, 0 * mean, -mean])
    shrinkage, none = np.array([0.25]), np.empty(0)
    components, weights = np.array([2, 1], np.int32), np.array([0.25, 0.75, 1.0])
    flat = {"spherical": np.ones((3, 1)), "diag": np.ones((3, n_features))}
    flat["full"] = np.array([pack_triangle(covariance)] * 3)
    flat["lowrank"] = np.ones((3, 2 * n_features + 1))
    apart = scatter_of(weights * counts[[0, 0, 2]], means)
    within = {"full": covariance, "lowrank": 3 * np.eye(n_features)}
    totals = {kind: apart + within.get(kind, np.eye(n_features)) for kind in flat}
    mixtures = [
        ClassMixtures(
            [0, 7], kind, counts[::2], components, weights, means, covariances, *rest
        )
        for kind, covariances in flat.items()
        for rest in [
            (none, none, "B"),
            (totals[kind], shrinkage, 5, "encoder"),
        ]
    ]
    total = covariance + scatter_of(counts, means)
    estimated = means, means / 2, np.array([0.5, 4.0, 0.25]), True
    mixed = [
        MixedEffectsModel(
            counts + 1.0,
            np.array([2, 1, 1]),
            *estimated,
            ["a", "b", "c"],
            covariance,
            0.1,
            np.array([0.5, 0.2, 0.3]),
            reference,
            *(0.3, True, False, ["A", "B"], encoder),
        )
        for reference, encoder in [(covariance, "encoder"), (none, None)]
    ]
    chosen = components, means, np.array([6.0, 6.0, 30.0])
    soft = np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]])
    of_rows = [
        ClassRows([0, 7], "kmeans", counts[::2], *chosen, none, none, none, none, "B"),
        ClassRows(
            ["a", "b"], "herding", counts[::2], *chosen, soft, means[::2], total,
            shrinkage, 5, "encoder",
        ),
    ]  # fmt: skip
    fisher, by_class = np.ones((2, n_features + 1)), np.array([[1, -1], [-1, 1]]) / 4
    curved = [
        CurvedHead([0, 7], kind, counts[::2], means[:2], mean[:2], *rest)
        for kind, rest in {
            "none": (none, none, none, none, none, "B"),
            "gram": (none, none, means[::2], total, none, "B"),
            "diag": (none, fisher, means[::2], none, none, 5, "encoder"),
            "kfac": (by_class, none, means[::2], total, shrinkage, "B"),
        }.items()
    ]
    head = {"weight": means, "bias": mean[:3], "steps": np.array(3)}
    return [
        ClientStatistics(50, mean, covariance, 0.1, "A", "encoder"),
        ClientStatistics(50, 1e9 * mean, 1e18 * covariance, 0.1, "far"),
        AlignmentReference(mean, covariance, 7, 1e-9, 0.4),
        ClassStatistics(["a", "b", "c"], counts, means, total, shrinkage, "A"),
        ClassStatistics([1.0, 2.0, 4.0], counts, means, total),
        ClassMeans(["a", "c"], counts[::2], means[::2], "A", "encoder"),
        *mixtures,
        *mixed,
        *of_rows,
        *curved,
        LinearModel(["x", "y"], mean[None], np.array([0.5]), "A"),
        AlignedModel(["x", "y"], mean[None], mean[:1], mean, covariance, 7, 1e-9, 0.4),
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
        start = time.process_time()
        try:
            original = None if mutate in RESEALED else source
            outcomes[mutate.__name__, outcome(data, original)] += 1
        except BaseException as error:
            error.add_note(f"case {case} of seed {seed}, {mutate.__name__}: {data!r}")
            raise
        slowest = max(slowest, time.process_time() - start)
        if is_measured:
            allowed = MOST_TIMES * len(data) + FIXED_MEMORY
            memory = max(memory, peak_memory(data) / allowed)
        if progress and (case + 1) % 10_000 == 0:
            progress(case + 1)
    assert slowest < SLOWEST, f"a case took {slowest:.1f} s"
    assert memory <= 1.0, f"a case took {memory:.2f} times the memory it may"
    return outcomes, slowest, memory


# -------------------------------------------------------------------------- forgery


def honest_messages(seed=0):
    """Messages of two clients by kind, and the server step that reads them.

    A message of a server has no step; what a client does with it is tried instead.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(30) % 3
    rows = [rng.normal(k, 1 + k, (30, 3)) + np.eye(3)[y] for k in range(2)]
    aligner = FederatedOTAligner()
    ot = {"aligner": aligner}
    estimators = [
        aligner,
        FederatedScaler(),
        FedCGSClassifier(**ot),
        FedCGSClassifier("within"),
        FedRidgeClassifier(**ot),
        MixedEffectsClassifier(),
        FedCOFClassifier(),
        *(
            FedPFTClassifier(k, covariance_type=t, draws=5, random_state=0, **ot)
            for k, t in [(1, "spherical"), (2, "diag"), (2, "full"), (1, "lowrank")]
        ),
        FedQDAClassifier(**ot),
        FedCoresetClassifier(random_state=0, **ot),
        FedMergeClassifier("kfac", **ot),
        FedEnsembleClassifier("stack", **ot),
        FedEnsembleClassifier("weighted"),
    ]
    for estimator in estimators:
        sent = [
            estimator.client_update(X, y, client=client)
            for X, client in zip(rows, "AB", strict=True)
        ]
        yield sent, estimator.server_aggregate
    averaging = FedAvgClassifier(averaging="samples")
    yield (
        [
            averaging.client_summary(X, client=c)
            for X, c in zip(rows, "AB", strict=True)
        ],
        (averaging.server_scale),
    )
    heads = [
        HeadWeights(
            ["x", "y"],
            np.array([9, 5]),
            {"w": w, "n": np.array(3)},
            np.ones(2),
            3,
            1,
            c,
        )
        for w, c in zip(rng.standard_normal((2, 2, 3)), "AB", strict=True)
    ]
    yield heads, averaging.server_average
    statistics = aligner.client_update(rows[0], client="A")
    mixed = MixedEffectsClassifier().fit(
        np.vstack(rows), np.r_[y, y], ["A"] * 30 + ["B"] * 30
    )
    aligned = FedCGSClassifier(**ot).fit(
        np.vstack(rows), np.r_[y, y], ["A"] * 30 + ["B"] * 30
    )
    yield [aligned.aligner_.reference_], lambda m: aligner.client_map(statistics, m[-1])
    yield (
        [aligned.shared_model()],
        lambda m: m[-1].head.pulled_back(
            *aligner.client_map(statistics, m[-1].reference).affine, "A"
        ),
    )
    yield [aligned.linear_model()], lambda m: m[-1].predict_proba(rows[0])
    yield [FeatureScale(np.zeros(3), 2.0)], lambda m: m[-1].apply(rows[0])
    described = mixed.client_update(rows[0], y, client="A")
    yield (
        [mixed.shared_model()],
        lambda m: MixedEffectsClassifier.from_model(m[-1], described),
    )


FACTORS = [-1.0, 0.0, 0.5, 1.001, 2.0, 10.0, 1e3, 1e6, 1e-3, 1e-30, 1e30, 1e-200, 1e59]
CLAIMS = [0, 1, 2, 1000, 2**31 - 1, 2**40, 2**52, 2**53, 2**62, -1]
FORGED_FACTS = [
    None, True, 0, 1, -1, 2, 0.5, 1.5, -0.5, 10**400, -(10**400), 2**53, 1e308, 1e-308,
    "", "a", "diag", "full", "kmeans", "none", "gram", "\ud800", [], ["a"], ["x", "y"],
    [0, 1], [0, 1, 2], [0, 1, 1], [True, False], [1.5, 2.5, 3.5], [10**400, 1, 2],
]  # fmt: skip


def forge(rng, message):
    """Bytes of a well-formed message with values of the forger's choice."""
    dtype = WIRE_DTYPES[rng.integers(3)]
    header, tensors = _open(message.to_bytes(dtype))
    header["client"] = "forged" if "client" in header else header.get("client")
    names = sorted(tensors)
    for _ in range(rng.integers(1, 4)):
        name = names[rng.integers(len(names))]
        array = tensors[name].copy()
        with np.errstate(all="ignore"):
            tensors[name] = _forged_array(rng, array)
    if rng.random() < 0.25:
        key = rng.choice([k for k in header if k not in ("kind", "format", "dtype")])
        header[key] = FORGED_FACTS[rng.integers(len(FORGED_FACTS))]
    if rng.random() < 0.1:
        header["scales"] = {name: int(rng.integers(-40, 40)) for name in names}
    return _close(header, tensors)


def _forged_array(rng, array):
    """An array of the same shape and, most often, type."""
    flat = array.reshape(-1)
    if not array.size:
        return array
    if array.dtype.kind != "f":
        if rng.random() < 0.1:
            return array.astype(np.float32)
        wide = array.astype(np.int64)
        spots = rng.integers(wide.size, size=rng.integers(1, wide.size + 1))
        wide.reshape(-1)[spots] = CLAIMS[rng.integers(len(CLAIMS))]
        return wide
    factor = FACTORS[rng.integers(len(FACTORS))]
    match rng.integers(7):
        case 0:
            flat *= factor
        case 1:
            flat += factor
        case 2:
            flat[rng.integers(flat.size)] *= factor
        case 3:
            flat[:] = rng.standard_normal(flat.size) * abs(factor)
        case 4:
            rng.shuffle(flat)
        case 5:
            flat[:] = factor
        case 6:
            flat[: rng.integers(flat.size + 1)] *= factor
    if rng.random() < 0.02:
        return np.asarray(np.rint(array), dtype=np.int64)
    return array


def consequence(data, honest, step):
    """What a server makes of a forged message beside an honest one."""
    try:
        message = load_message(data)
        result = step([*honest, message])
        found = _numbers_of(result)
    except MessageError as error:
        str(error)
        return "refused"
    for numbers in found:
        assert np.isfinite(numbers).all(), "a result is not finite"
    both = [*honest, message]
    if isinstance(message, ClientStatistics | FeatureSummary):
        sizes = np.array([each.n_samples for each in both], dtype=float)
        expected = sizes @ np.array([each.mean for each in both]) / sizes.sum()
        largest = np.abs(expected).max() + 1e-300
        mean = getattr(result, "reference_mean_", None)
        mean = result.mean if mean is None else mean
        assert np.abs(mean - expected).max() <= 1e-6 * largest
    return "used"


def _numbers_of(result):
    """Arrays of a message that can be sent, of a map, or of a fitted classifier."""
    if isinstance(result, Message):
        result._check(deep=True)
        return [a for a in result._arrays().values() if a.dtype.kind == "f"]
    if isinstance(result, np.ndarray):
        return [result]
    if hasattr(result, "affine"):
        return [part for part in result.affine if part is not None]
    if hasattr(result, "transform"):
        answer = "reference_" if hasattr(result, "reference_") else "statistics_"
        return _numbers_of(getattr(result, answer))
    rows = np.zeros((2, result.n_features_in_))
    clients = (
        result.aligner_.clients_.tolist() if hasattr(result, "aligner_") else [None]
    )
    assert set(result.predict(rows, clients[0])) <= set(result.classes_.tolist())
    return [result.predict_proba(rows, clients[0])]


def fuzz_forgeries(n_cases, seed=0, progress=None):
    """Consequences by kind of message, slowest case in s of this process."""
    rng = np.random.default_rng(seed)
    outcomes, slowest = Counter(), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = list(honest_messages())
        for case in range(n_cases):
            messages, step = pool[rng.integers(len(pool))]
            data = forge(rng, messages[-1])
            start = time.process_time()
            try:
                outcome = consequence(data, messages[:1], step)
            except BaseException as error:
                kind = messages[-1].kind
                error.add_note(f"case {case} of seed {seed}, {kind}: {data!r}")
                raise
            slowest = max(slowest, time.process_time() - start)
            outcomes[messages[-1].kind, outcome] += 1
            if progress and (case + 1) % 10_000 == 0:
                progress(case + 1)
    assert slowest < SLOWEST_STEP, f"a case took {slowest:.1f} s"
    return outcomes, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--forged", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()

    def progress(n_cases):
        print(f"{n_cases} cases, {time.perf_counter() - start:.0f} s", flush=True)

    outcomes, slowest, memory = fuzz(arguments.cases, arguments.seed, progress=progress)
    print(f"{'mutation':<20}{'refused':>9}{'read':>9}")
    for name in (mutation.__name__ for mutation in MUTATIONS):
        print(f"{name:<20}{outcomes[name, 'refused']:>9}{outcomes[name, 'read']:>9}")
    print(
        f"{sum(outcomes.values())} cases, no error but MessageError; slowest "
        f"{1000 * slowest:.0f} ms; memory at most {memory:.2f} of what is allowed "
        f"(3 times the message)"
    )
    outcomes, slowest = fuzz_forgeries(
        arguments.forged, arguments.seed, progress=progress
    )
    print(f"{'forged':<20}{'refused':>9}{'used':>9}")
    for kind in sorted({kind for kind, _ in outcomes}):
        print(f"{kind:<20}{outcomes[kind, 'refused']:>9}{outcomes[kind, 'used']:>9}")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{sum(outcomes.values())} forged messages, no error but MessageError, no "
        f"result that is not finite; slowest step {1000 * slowest:.0f} ms; process "
        f"{rss:.0f} MB"
    )


if __name__ == "__main__":
    main()
