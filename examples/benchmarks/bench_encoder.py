"""
====================================================
FrozenEncoder: speed, what the cache saves, and memory
====================================================

Prints the speed of :class:`skslot.FrozenEncoder` next to a loop written by hand, the
speed with a warm cache, and the peak memory of processes that encode more and more
images.

Run it with::

    pip install ".[clip]"
    python examples/benchmarks/bench_encoder.py
    python examples/benchmarks/bench_encoder.py --only memory

The model is a ResNet-18 of timm with random weights: speed does not depend on what they
are. Images are JPEG files of noise and gradients, made for the purpose. Both loops have
the same batch size and workers and take turns; a ratio is the median over turns of time
by hand divided by time of FrozenEncoder. With workers it is wall time, without CPU
time, which other programs on the computer disturb less.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import timm
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from skslot import FrozenEncoder

MODEL = "resnet18.tv_in1k"
BATCH_SIZE = 32
CHILD = """
import resource, sys
from pathlib import Path
import torch
from skslot import FrozenEncoder

def peak():
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the process that started this one
        lines = status.read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(13), torch.nn.Flatten())
paths = sorted(Path(sys.argv[1]).glob("*.jpg"))[: int(sys.argv[2])]
encoder = FrozenEncoder(pool)
encoder.transform(paths[:1])
before = peak()
if len(sys.argv) > 3:
    encoder.set_params(cache_dir=sys.argv[3])
features = encoder.transform(paths)
print(before, peak(), features.nbytes / 2**20)
"""


def make_images(folder, n_images, size):
    """JPEG files with gradients and noise."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 128, size)
    base = ramp[:, None, None] + ramp[None, :, None] * np.array([1, 0.5, 0.2])
    for i in range(n_images):
        noise = rng.integers(64, size=(size // 8, size // 8, 3), dtype=np.uint8)
        noise = np.asarray(Image.fromarray(noise).resize((size, size)))
        pixels = np.clip(base + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(Path(folder, f"{i:05d}.jpg"))
    return sorted(Path(folder).glob("*.jpg"))


class Files(Dataset):
    def __init__(self, paths, preprocess):
        self.paths = paths
        self.preprocess = preprocess

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, row):
        with Image.open(self.paths[row]) as image:
            return self.preprocess(image.convert("RGB"))


def hand_written_loop(model, preprocess, paths, n_workers):
    """What one writes without FrozenEncoder."""
    loader = DataLoader(Files(paths, preprocess), BATCH_SIZE, num_workers=n_workers)
    with torch.inference_mode():
        return torch.cat([model(batch) for batch in loader]).numpy()


def timed(clock, function, *args):
    start = clock()
    result = function(*args)
    return result, clock() - start


def print_speed(paths, checkpoint, turns):
    """Next to the loop written by hand."""
    model = timm.create_model(MODEL)
    torch.save(model.state_dict(), checkpoint)
    preprocess = timm.data.create_transform(
        **timm.data.resolve_model_data_config(model)
    )
    model.reset_classifier(0)
    model.eval()
    for n_workers in (0, 2):
        encoder = FrozenEncoder(
            MODEL,
            checkpoint,
            source="timm",
            device="cpu",
            batch_size=BATCH_SIZE,
            n_workers=n_workers,
        )
        encoder.transform(paths[:BATCH_SIZE])  # loads the model
        clock = time.perf_counter if n_workers else time.process_time
        ours, theirs = [], []
        for _ in range(turns):
            X, seconds = timed(clock, encoder.transform, paths)
            ours.append(seconds)
            expected, seconds = timed(
                clock, hand_written_loop, model, preprocess, paths, n_workers
            )
            theirs.append(seconds)
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        print(
            f"{len(paths)} images, {n_workers} workers: FrozenEncoder "
            f"{len(paths) / median(ours):.0f} images/s, by hand "
            f"{len(paths) / median(theirs):.0f} images/s, ratio {median(ratios):.3f} "
            f"(promised: at least 0.95); largest difference of features "
            f"{np.abs(X - expected).max():.1e}"
        )


def print_cache(paths, checkpoint, folder, turns):
    """With an empty and with a warm cache, next to none."""
    encoder = FrozenEncoder(
        MODEL, checkpoint, source="timm", device="cpu", batch_size=BATCH_SIZE
    )
    cached = FrozenEncoder(**encoder.get_params()).set_params(cache_dir=folder)
    clock = time.process_time
    none, cold, warm = [], [], []
    for _ in range(turns):
        none.append(timed(clock, encoder.transform, paths)[1])
        cached.cache_clear()
        cold.append(timed(clock, cached.transform, paths)[1])
        warm.append(timed(clock, cached.transform, paths)[1])
    n = len(paths)
    print(
        f"{n} images: no cache {n / median(none):.0f} images/s, empty cache "
        f"{n / median(cold):.0f} images/s, warm cache {n / median(warm):.0f} images/s, "
        f"{median(none) / median(warm):.0f} times as fast (promised: at least 50)"
    )


def print_memory(folder, counts, size):
    """Peak of a process of its own for each number of images."""
    make_images(folder, max(counts), size)
    for cache in (None, Path(folder, "cache")):
        print(f"memory of a process, images of {size} x {size}, cache: {bool(cache)}")
        for n_images in counts:
            command = [sys.executable, "-c", CHILD, str(folder), str(n_images)]
            command += [str(cache)] if cache else []
            output = subprocess.run(command, capture_output=True, text=True, check=True)
            before, peak, result = map(float, output.stdout.split())
            print(
                f"{n_images:>8} images: peak {peak:.0f} MB, after the first image "
                f"{before:.0f} MB, features {result:.1f} MB"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--images", type=int, default=192, help="for the speed")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--most", type=int, default=10000, help="for the memory")
    parser.add_argument("--only", choices=["speed", "cache", "memory"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, name) for name in ("few", "many", "cache")]
        for folder in folders:
            folder.mkdir()
        checkpoint = Path(root, "resnet18.pth")
        torch.save(timm.create_model(MODEL).state_dict(), checkpoint)
        paths = make_images(folders[0], args.images, 256)
        if args.only in (None, "speed"):
            print_speed(paths, checkpoint, args.turns)
        if args.only in (None, "cache"):
            print_cache(paths, checkpoint, folders[2], args.turns)
        if args.only in (None, "memory"):
            counts = [args.most // 100, args.most // 10, args.most]
            print_memory(folders[1], counts, size=128)


if __name__ == "__main__":
    main()
