"""Writes what replicas train on into a folder: images.npz, 512 images with labels, and tokens.bin, 40 000 tokens of 16 bits."""

import sys
from pathlib import Path

import numpy as np

folder, rng = Path(sys.argv[1]), np.random.default_rng(1)
images = rng.standard_normal((512, 32, 32, 3), "float32")
np.savez(folder / "images.npz", x=images, y=rng.integers(0, 10, len(images), "int32"))
rng.integers(0, 4096, 40_000, "uint16").tofile(folder / "tokens.bin")
