"""Numbers and sizes for cases, drawn from a seed and the name of the case.

A case's draws depend on no other case: a failure is found again by its seed and name, also after cases were added.
"""

import zlib

import numpy as np


class Draw:
    def __init__(self, seed, name):
        self.numbers = np.random.default_rng([seed, zlib.crc32(name.encode())])

    def size(self, low, high):
        """Both ends included."""
        return int(self.numbers.integers(low, high + 1))

    def sizes(self, count, low, high):
        return [self.size(low, high) for _ in range(count)]

    def pick(self, choices):
        return choices[self.size(0, len(choices) - 1)]

    def between(self, low, high):
        """A number with few digits, so that a list of cases can be read."""
        return round(float(self.numbers.uniform(low, high)), 3)

    def normal(self, *shape, scale=1.0, shift=0.0):
        return np.float32(self.numbers.standard_normal(shape) * scale + shift)

    def positive(self, *shape):
        """Away from zero, where logarithms, roots and quotients are tame, and sums of them cancel nothing."""
        return np.float32(self.numbers.uniform(0.25, 2.0, shape))

    def distinct(self, *shape):
        """No two are equal or nearly so: a maximum is never tied."""
        count = int(np.prod(shape))
        return np.float32((self.numbers.permutation(count) - count / 2) / 16).reshape(shape)

    def whole(self, *shape, below):
        return self.numbers.integers(0, below, shape).astype(np.int32)

    def shares(self, *shape):
        """Rows of the last axis are distributions."""
        raw = self.numbers.uniform(0.0, 1.0, shape) ** 3
        return np.float32(raw / raw.sum(-1, keepdims=True))
