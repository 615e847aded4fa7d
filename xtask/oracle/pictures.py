"""Vectors of picture augmentation, for crates/data/examples/operations.rs, which says what the files have.

    pictures.py --out DIR --seed N                by Pillow, and by numpy where Pillow defines an operation otherwise
    pictures.py --out DIR --seed N --torchvision  by torchvision, whose definitions these are

Never looks at what memfit computes. crates/data/tests/fixtures/operations.* are those of --torchvision --seed 1.
"""

import argparse
from pathlib import Path

import numpy as np

# Rounding: frameworks round down where memfit rounds to the nearest; of what is made from a grey image, once more before.
CLOSE = (1, 0.75)
TWICE = (2, 1.05)
EXACT = (0, 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the directory to write to")
    parser.add_argument("--seed", type=int, default=1, help="varies sizes, pixels and numbers")
    parser.add_argument("--torchvision", action="store_true", help="what torchvision makes of them")
    arguments = parser.parse_args()
    compute = Torchvision() if arguments.torchvision else Plain()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(arguments.seed)
    lines, raw = [], []
    for operation, numbers, (most, mean) in cases(rng):
        image = picture(rng, 1 if operation == "brightness" and len(lines) % 2 else 3)
        expected = getattr(compute, operation)(image, *numbers)
        assert expected.shape == image.shape and expected.dtype == np.uint8, operation
        sizes = " ".join(str(n) for n in image.shape)
        lines.append(" ".join([sizes, str(most), str(mean), operation, *(f"{n:g}" for n in numbers)]))
        raw += [image.tobytes(), expected.tobytes()]
    (arguments.out / "operations.txt").write_text("\n".join(lines) + "\n")
    (arguments.out / "operations.raw").write_bytes(b"".join(raw))


def cases(rng):
    """Operations with their numbers, and how far values may be apart: at most, and on average."""

    def between(low, high):
        return round(float(rng.uniform(low, high)), 3)

    for operation in ["brightness", "brightness", "contrast", "saturation", "sharpness"]:
        for low, high in [(0, 0.6), (1.2, 1.9)]:
            yield operation, [between(low, high)], CLOSE if operation == "brightness" else TWICE
    for share in [0.5, -0.25, between(-0.5, 0.5), between(-0.5, 0.5)]:
        yield "hue", [share], TWICE
    yield "grayscale", [], CLOSE
    yield "invert", [], EXACT
    yield "autocontrast", [], CLOSE
    yield "equalize", [], EXACT
    for bits in [1, int(rng.integers(2, 8)), 8]:
        yield "posterize", [bits], EXACT
    for start in [0, int(rng.integers(1, 255))]:
        yield "solarize", [start], EXACT
    for sigma, radius in [(between(0.3, 1), 2), (between(1, 2), 5)]:
        yield "blur", [sigma, radius], CLOSE
    yield "affine", [between(-30, 30), 0, 0, 1, 0, 0], CLOSE
    yield "affine", [0, int(rng.integers(-5, 5)), int(rng.integers(-5, 5)), 1, 0, 0], EXACT
    yield "affine", [0, 0, 0, between(0.6, 1.6), 0, 0], CLOSE
    yield "affine", [0, 0, 0, 1, between(-25, 25), 0], CLOSE
    yield "affine", [between(-90, 90), 2, -1, between(0.8, 1.2), between(-15, 15), between(-15, 15)], CLOSE


def picture(rng, channels):
    """Smooth, with some noise; more pixels than values, so that there is something to equalize."""
    height, width = (int(n) for n in rng.integers(17, 26, 2))
    low = rng.uniform(20, 235, (3, 4, channels))
    rows, columns = np.linspace(0, 2, height), np.linspace(0, 3, width)
    y, x = np.floor(rows.clip(0, 1.999)).astype(int), np.floor(columns.clip(0, 2.999)).astype(int)
    down, across = (rows - y)[:, None, None], (columns - x)[None, :, None]
    upper = low[y][:, x] * (1 - across) + low[y][:, x + 1] * across
    lower = low[y + 1][:, x] * (1 - across) + low[y + 1][:, x + 1] * across
    image = upper * (1 - down) + lower * down + rng.normal(0, 8, (height, width, channels))
    return np.clip(image, 0, 255).astype(np.uint8)


class Torchvision:
    def __init__(self):
        import torch
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.v2 import functional

        self.f, self.torch, self.bilinear = functional, torch, InterpolationMode.BILINEAR

    def call(self, name, image, *arguments, **named):
        planes = self.torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        made = getattr(self.f, name)(planes, *arguments, **named)
        return np.ascontiguousarray(made.numpy().transpose(1, 2, 0))

    def brightness(self, image, factor):
        return self.call("adjust_brightness", image, factor)

    def contrast(self, image, factor):
        return self.call("adjust_contrast", image, factor)

    def saturation(self, image, factor):
        return self.call("adjust_saturation", image, factor)

    def sharpness(self, image, factor):
        return self.call("adjust_sharpness", image, factor)

    def hue(self, image, share):
        return self.call("adjust_hue", image, share)

    def grayscale(self, image):
        return self.call("rgb_to_grayscale", image, num_output_channels=3)

    def invert(self, image):
        return self.call("invert", image)

    def autocontrast(self, image):
        return self.call("autocontrast", image)

    def equalize(self, image):
        return self.call("equalize", image)

    def posterize(self, image, bits):
        return self.call("posterize", image, bits)

    def solarize(self, image, start):
        return self.call("solarize", image, start)

    def blur(self, image, sigma, radius):
        return self.call("gaussian_blur", image, [2 * radius + 1] * 2, [sigma, sigma])

    def affine(self, image, degrees, right, down, scale, shear_x, shear_y):
        return self.call(
            "affine", image, degrees, [right, down], scale, [shear_x, shear_y], interpolation=self.bilinear
        )


class Plain:
    """torchvision's operations on PIL's images are calls of Pillow; those on tensors are written out where they differ."""

    def __init__(self):
        from PIL import Image, ImageEnhance, ImageOps

        self.image, self.enhance, self.ops = Image, ImageEnhance, ImageOps

    def call(self, operation, image, *arguments):
        grey = image.shape[2] == 1
        made = np.asarray(operation(self.image.fromarray(image[..., 0] if grey else image), *arguments))
        return np.array(made[..., None] if grey else made)

    def enhanced(self, name, image, factor):
        return self.call(lambda i: getattr(self.enhance, name)(i).enhance(factor), image)

    def brightness(self, image, factor):
        return self.enhanced("Brightness", image, factor)

    def contrast(self, image, factor):
        return self.enhanced("Contrast", image, factor)

    def saturation(self, image, factor):
        return self.enhanced("Color", image, factor)

    def sharpness(self, image, factor):
        return self.enhanced("Sharpness", image, factor)

    def hue(self, image, share):
        import colorsys

        def turned(pixel):
            h, s, v = colorsys.rgb_to_hsv(*(pixel / 255))
            return colorsys.hsv_to_rgb((h + share) % 1, s, v)

        return rounded(np.apply_along_axis(turned, 2, image) * 255)

    def grayscale(self, image):
        return self.call(lambda i: self.ops.grayscale(i).convert("RGB"), image)

    def invert(self, image):
        return self.call(self.ops.invert, image)

    def autocontrast(self, image):
        return self.call(self.ops.autocontrast, image)

    def equalize(self, image):
        return self.call(self.ops.equalize, image)

    def posterize(self, image, bits):
        return self.call(self.ops.posterize, image, bits)

    def solarize(self, image, start):
        return self.call(self.ops.solarize, image, start)

    def blur(self, image, sigma, radius):
        x = np.arange(-radius, radius + 1)
        bell = np.exp(-0.5 * (x / sigma) ** 2)
        bell /= bell.sum()
        padded = np.pad(image.astype(float), [(radius, radius), (radius, radius), (0, 0)], mode="reflect")
        height, width, _ = image.shape
        down = sum(w * padded[i : i + height] for i, w in enumerate(bell))
        return rounded(sum(w * down[:, i : i + width] for i, w in enumerate(bell)))

    def affine(self, image, degrees, right, down, scale, shear_x, shear_y):
        rotation, sx, sy = np.radians([degrees, shear_x, shear_y])
        # The rotation, and a shear along the rows and along the columns, as torchvision puts them together.
        there = scale * np.array(
            [
                [np.cos(rotation - sy) / np.cos(sy), -np.cos(rotation - sy) * np.tan(sx) / np.cos(sy) - np.sin(rotation)],
                [np.sin(rotation - sy) / np.cos(sy), -np.sin(rotation - sy) * np.tan(sx) / np.cos(sy) + np.cos(rotation)],
            ]
        )
        height, width, _ = image.shape
        middle = np.array([(width - 1) / 2, (height - 1) / 2])
        x, y = np.meshgrid(np.arange(width), np.arange(height))
        places = np.stack([x, y], -1) - middle - [right, down]
        places = places @ np.linalg.inv(there).T + middle
        return rounded(sampled(image.astype(float), places[..., 0], places[..., 1]))


def sampled(image, x, y):
    """Bilinear, with zeroes outside."""
    padded = np.pad(image, [(1, 1), (1, 1), (0, 0)])
    height, width, _ = padded.shape
    x, y = (x + 1).clip(0, width - 1), (y + 1).clip(0, height - 1)
    left, top = np.floor(x).clip(0, width - 2).astype(int), np.floor(y).clip(0, height - 2).astype(int)
    across, down = (x - left)[..., None], (y - top)[..., None]
    upper = padded[top, left] * (1 - across) + padded[top, left + 1] * across
    lower = padded[top + 1, left] * (1 - across) + padded[top + 1, left + 1] * across
    return upper * (1 - down) + lower * down


def rounded(values):
    return np.floor(values + 0.5).clip(0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
