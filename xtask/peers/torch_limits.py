"""What the machine can do, through PyTorch's products of matrices and copies. Variants: products (of several sizes),
rates (one product, and memory bandwidth); the workload does not matter.
"""

import common
import torch

# 256 MiB each: more than caches hold.
NUMBERS = 64 << 20


def product(side):
    a, b, out = torch.randn(side, side), torch.randn(side, side), torch.empty(side, side)
    common.report(f"product_{side}", common.median_seconds(lambda: torch.mm(a, b, out=out)))


def bandwidth():
    """The better of a copy (a number read, one written) and a triad (two read, one written), in bytes per second."""
    a, b, out = (torch.ones(NUMBERS) for _ in range(3))
    copy = common.median_seconds(lambda: out.copy_(a))
    triad = common.median_seconds(lambda: torch.add(a, b, alpha=3.0, out=out))
    common.report("bandwidth", 4 * NUMBERS * max(2 / copy, 3 / triad))


torch.set_num_threads(common.THREADS)
with torch.no_grad():
    if common.VARIANT == "products":
        for side in (1024, 2048, 4096):
            product(side)
    else:
        product(2048)
        bandwidth()
