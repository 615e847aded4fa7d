"""Weights across the border: files that memfit writes are read here, and files written here are read by memfit.

    weights.py DIR -- COMMAND…    COMMAND starts memfit; DIR takes the files

Only the safetensors library judges the format; nothing here knows how memfit stores a tensor.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

DOUBLED = "conv1/conv/weight"
EXPECTED = {
    DOUBLED: (3, 3, 1, 32),
    "conv1/bn/scale": (32,),
    "conv1/bn/var": (32,),
    "conv3/conv/weight": (3, 3, 32, 64),
    "fc/weight": (1024, 10),
    "fc/bias": (10,),
}
BAD_DATA = 4
# So small a step moves no weight of float32, so that what was loaded is what is written.
STAND_STILL = ["--optimizer", "sgd", "--lr", "1e-30", "--steps", "1"]


def main():
    directory, dashes, *memfit = sys.argv[1:] + [""] * max(0, 3 - len(sys.argv))
    if dashes != "--" or not memfit:
        sys.exit(__doc__)
    directory = Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    succeeds(memfit, ["--steps", "3", "--out", directory / "trained"])
    weights = load_file(directory / "trained" / "weights.safetensors")
    check_trained(weights)
    check_accepted(memfit, directory, weights)
    check_told(memfit, directory, weights)
    print(f"{len(weights)} tensors went both ways: {directory}")


def train(memfit, arguments):
    return subprocess.run([*memfit, "train", *map(str, arguments)], capture_output=True, text=True)


def succeeds(memfit, arguments):
    done = train(memfit, arguments)
    if done.returncode != 0:
        sys.exit(f"memfit train failed with exit code {done.returncode}: {done.stderr}")
    return done.stdout


def check_trained(weights):
    for name, shape in EXPECTED.items():
        if name not in weights:
            sys.exit(f'memfit wrote no "{name}"; there are {", ".join(sorted(weights))}')
        if weights[name].shape != shape:
            sys.exit(f'memfit wrote "{name}" as {weights[name].shape}, expected {shape}')
    for name, w in weights.items():
        if w.dtype != np.float32 or not np.isfinite(w).all():
            sys.exit(f'memfit wrote "{name}" as {w.dtype}, or not all of it is finite')


def check_accepted(memfit, directory, weights):
    """What was changed here comes back with the change, and the rest as it was."""
    doubled = weights | {DOUBLED: weights[DOUBLED] * 2}
    given, run = directory / "doubled.safetensors", directory / "loaded"
    save_file(doubled, given)
    succeeds(memfit, ["--weights", given, *STAND_STILL, "--out", run])
    back = load_file(run / "weights.safetensors")
    if set(back) != set(doubled):
        sys.exit(f"memfit was given other names than it wrote: {sorted(set(back) ^ set(doubled))}")
    for name, w in doubled.items():
        # Running statistics move with the batch, whatever the learning rate.
        if name.endswith(("/mean", "/var")):
            continue
        if back[name].shape != w.shape or not np.allclose(back[name], w, rtol=0, atol=1e-20):
            sys.exit(f'memfit did not load "{name}" as it was given')


def check_told(memfit, directory, weights):
    """A training takes what fits by name, type and shape, and says what it did not find; a damaged file is refused."""
    changes = {
        "missing": ("fc/bias", None),
        "other_shape": ("fc/weight", weights["fc/weight"].T.copy()),
        "other_type": ("conv2/bn/scale", weights["conv2/bn/scale"].astype(np.float64)),
    }
    for what, (name, tensor) in changes.items():
        path = directory / f"{what}.safetensors"
        save_file({n: w for n, w in (weights | {name: tensor}).items() if w is not None}, path)
        told = succeeds(memfit, ["--weights", path, *STAND_STILL, "--out", directory / what])
        if name not in told:
            sys.exit(f"{path.name} lacks {name}, of which memfit says nothing: {told}")
    cut = directory / "cut.safetensors"
    cut.write_bytes((directory / "trained" / "weights.safetensors").read_bytes()[:-1])
    done = train(memfit, ["--weights", cut, *STAND_STILL, "--out", directory / "cut"])
    if done.returncode != BAD_DATA or cut.name not in done.stderr:
        sys.exit(
            f"{cut.name} should be refused with exit code {BAD_DATA} and its name, "
            f"but the exit code is {done.returncode}: {done.stderr}"
        )


if __name__ == "__main__":
    main()
