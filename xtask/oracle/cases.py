"""The cases that are generated: for each op the shapes and attributes that its kernels tell apart.

Says what is asked, never what the answer is. Sizes are drawn, so that every seed asks for others.
"""

import dataclasses
from dataclasses import dataclass
from typing import Callable

import numpy as np

from draw import Draw


@dataclass
class OpCase:
    name: str
    op: str
    attrs: dict
    inputs: dict
    # All inputs of floats unless given.
    grads: list | None = None
    # Makes the cotangent from its shape.
    cotangent: Callable | None = None


@dataclass
class OptimizerCase:
    name: str
    op: str
    attrs: dict
    start: np.ndarray
    gradients: list


@dataclass
class RunCase:
    name: str
    spec: dict
    init: dict
    batches: list


def all_cases(seed):
    families = [unaries, binaries, choices, reductions, layouts, matmuls, convs, transposed_convs, attentions, pools]
    families += [upsamplings, norms, softmaxes, losses, gathers, optimizers, runs]
    for family in families:
        for case in family(lambda name: Draw(seed, name)):
            yield completed(case, seed) if isinstance(case, OpCase) else case


def completed(case, seed):
    floats = [n for n, x in case.inputs.items() if x.dtype == np.float32]
    draw = Draw(seed, case.name + "/ct")
    # The gradient of a scalar is one sum over everything; of signs that differ it would be mostly cancellation.
    lone = any(case.inputs[n].size == 1 for n in floats)
    drawn = (lambda shape: draw.positive(*shape)) if lone else (lambda shape: draw.normal(*shape))
    grads = floats if case.grads is None else case.grads
    return dataclasses.replace(case, grads=grads, cotangent=case.cotangent or drawn)


# ---- elementwise -----------------------------------------------------------------------------------------------------

ANYWHERE = ["neg", "abs", "exp", "tanh", "sigmoid", "relu", "relu6", "leaky_relu", "elu", "softplus", "hardsigmoid"]
ANYWHERE += ["hardswish", "silu", "gelu_tanh", "gelu_erf"]
ABOVE_ZERO = ["log", "sqrt", "rsqrt"]


def unaries(new):
    for op in ANYWHERE + ABOVE_ZERO:
        for rank in [1, 3]:
            name = f"unary_{op}_rank{rank}"
            draw = new(name)
            shape = draw.sizes(rank, 2, 9) if rank > 1 else [draw.size(200, 700)]
            x = draw.positive(*shape) if op in ABOVE_ZERO else draw.normal(*shape, scale=3)
            attrs = {"alpha": draw.between(0.05, 2)} if op in ["leaky_relu", "elu"] else {}
            yield OpCase(name, op, attrs, {"x": x})
    for op in ["tanh", "sigmoid", "softplus", "silu", "gelu_tanh", "gelu_erf", "elu", "hardswish"]:
        name = f"unary_{op}_far_out"
        yield OpCase(name, op, {}, {"x": new(name).normal(97, scale=30)})
    name = "unary_leaky_relu_named"
    yield OpCase(name, "leaky_relu_0.35", {}, {"x": new(name).normal(5, 13)})


def broadcasts(draw):
    """Pairs of shapes, by what a kernel has to do for them."""
    a, b, c, d = draw.sizes(4, 2, 9)
    return {
        "same": ([a, b, c], [a, b, c]),
        "row": ([a, b, c], [c]),
        "column": ([a, b], [a, 1]),
        "left_smaller": ([c], [a, b, c]),
        "crossing": ([a, 1, c], [b, 1]),
        "scalar": ([a, b, c], []),
        "one_left": ([1], [a, b]),
        "channels": ([a, b, c, d], [d]),
        "image_gates": ([a, b, c, d], [a, 1, 1, d]),
        "middle": ([a, b, c, d], [b, 1, d]),
    }


def binaries(new):
    for op in ["add", "sub", "mul", "div", "min", "max", "pow"]:
        for pattern in broadcasts(new("")):
            name = f"binary_{op}_{pattern}"
            draw = new(name)
            left, right = broadcasts(draw)[pattern]
            # Sums over everything, and bases of powers, stay above zero.
            x = draw.positive if op == "pow" or 1 in [np.prod(left), np.prod(right)] else draw.normal
            y = draw.positive if op == "div" else x
            yield OpCase(name, op, {}, {"x": x(*left), "y": y(*right)})
    for op in ["add", "mul", "max"]:
        name = f"binary_{op}_whole_numbers"
        draw = new(name)
        shape = draw.sizes(2, 3, 9)
        yield OpCase(name, op, {}, {"x": draw.whole(*shape, below=50), "y": draw.whole(shape[1], below=50)})


def choices(new):
    for op in ["eq", "ne", "lt", "le", "gt", "ge"]:
        name = f"compare_{op}"
        draw = new(name)
        shape = draw.sizes(3, 2, 7)
        # Few values, so that some are equal.
        x, y = draw.whole(*shape, below=3), draw.whole(*shape[1:], below=3)
        yield OpCase(name, op, {}, {"x": np.float32(x), "y": np.float32(y)}, grads=[])
    for name, shapes in [("select_same", ("abc", "abc", "abc")), ("select_broadcast", ("ab1", "c", "a1c"))]:
        draw = new(name)
        extents = {"a": draw.size(2, 7), "b": draw.size(2, 7), "c": draw.size(2, 7), "1": 1}
        condition, x, y = [[extents[axis] for axis in shape] for shape in shapes]
        inputs = {"condition": draw.whole(*condition, below=2), "x": draw.normal(*x), "y": draw.normal(*y)}
        yield OpCase(name, "select", {}, inputs)
    for to in ["float16", "bfloat16"]:
        draw = new(f"cast_{to}")
        yield OpCase(f"cast_{to}", "cast", {"to": to}, {"x": draw.normal(draw.size(3, 9), 31, scale=10)}, grads=[])


# ---- reduce, layout --------------------------------------------------------------------------------------------------


def reductions(new):
    sets = {"first": (3, [0]), "last": (2, [-1]), "middle": (3, [1]), "outer": (4, [0, 2]), "image": (4, [1, 2])}
    sets |= {"inner": (4, [1, 3]), "batch": (4, [0, 1, 2]), "everything": (3, None), "vector": (1, [0])}
    for op in ["sum", "mean", "max", "sum_squares"]:
        for axes_name, (rank, axes) in sets.items():
            name = f"reduce_{op}_{axes_name}"
            draw = new(name)
            shape = [draw.size(300, 1500)] if rank == 1 else draw.sizes(rank, 3, 11)
            x = draw.distinct(*shape) if op == "max" else draw.normal(*shape, shift=0.5)
            attrs = {} if axes is None else {"axes": axes}
            attrs |= {"keepdims": True} if draw.pick([False, True]) else {}
            yield OpCase(name, f"reduce_{op}", attrs, {"x": x})
    for name, shape, axes in [("rows_long", (5, 1201), [1]), ("columns_long", (1203, 5), [0])]:
        yield OpCase(f"reduce_sum_{name}", "reduce_sum", {"axes": axes}, {"x": new(name).normal(*shape, shift=0.3)})


def layouts(new):
    yield from transposes(new)
    yield from concats(new)
    for rank in range(1, 5):
        draw = new(f"slice_rank{rank}")
        shape = draw.sizes(rank, 3, 9)
        start = [draw.size(0, n - 2) for n in shape]
        stop = [draw.size(low + 1, n) for low, n in zip(start, shape)]
        x = draw.normal(*shape)
        yield OpCase(f"slice_rank{rank}", "slice", {"start": start, "stop": stop}, {"x": x})
        draw = new(f"pad_rank{rank}")
        pads = [draw.sizes(2, 0, 3) for _ in range(rank)]
        yield OpCase(f"pad_rank{rank}", "pad", {"pads": pads}, {"x": draw.normal(*draw.sizes(rank, 1, 7))})
    draw = new("reshape")
    a, b, c = draw.sizes(3, 2, 7)
    yield OpCase("reshape", "reshape", {"shape": [b, a * c]}, {"x": draw.normal(a, b, c)})
    for kind in ["rows", "columns", "leading", "inside"]:
        draw = new(f"broadcast_{kind}")
        a, b, c = draw.sizes(3, 2, 7)
        shape = {"rows": [c], "columns": [b, 1], "leading": [1, b, c], "inside": [a, 1, c]}[kind]
        yield OpCase(f"broadcast_{kind}", "broadcast", {"shape": [a, b, c]}, {"x": draw.normal(*shape)})


def transposes(new):
    for perm in [[1, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [0, 3, 1, 2], [0, 2, 3, 1], [3, 1, 2, 0], [1, 0, 3, 2, 4]]:
        name = "transpose_" + "".join(map(str, perm))
        draw = new(name)
        longest = 40 if len(perm) == 2 else 7
        yield OpCase(name, "transpose", {"perm": perm}, {"x": draw.normal(*draw.sizes(len(perm), 2, longest))})


def concats(new):
    for rank, axis, parts in [(1, 0, 2), (2, 0, 3), (2, -1, 2), (3, 1, 3), (4, 3, 4), (4, 1, 2), (4, 0, 2)]:
        name = f"concat_rank{rank}_axis{axis % rank}_of{parts}"
        draw = new(name)
        shape = draw.sizes(rank, 2, 6)
        inputs = {}
        for i in range(parts):
            shape[axis] = draw.size(1, 7)
            inputs[f"x{i}"] = draw.normal(*shape)
        yield OpCase(name, "concat", {"axis": axis}, inputs)


# ---- contractions ----------------------------------------------------------------------------------------------------


def matmuls(new):
    ranges = {"tiny": [(1, 5)] * 3, "small": [(3, 20)] * 3, "edge": [(15, 35)] * 3, "large": [(60, 130)] * 3}
    ranges |= {"deep": [(1, 9), (500, 1100), (1, 9)], "tall": [(400, 700), (2, 9), (3, 20)]}
    ranges |= {"wide": [(1, 4), (3, 20), (400, 700)], "row": [(1, 1), (40, 90), (30, 80)]}
    ranges |= {"column": [(30, 80), (40, 90), (1, 1)]}
    for turned_a in [False, True]:
        for turned_b in [False, True]:
            turns = ("t" if turned_a else "n") + ("t" if turned_b else "n")
            attrs = {"transpose_a": turned_a, "transpose_b": turned_b}
            for size, extents in ranges.items():
                name = f"matmul_{size}_{turns}"
                draw = new(name)
                yield product(name, attrs, draw, [], [], [draw.size(*e) for e in extents])
            for batch in [1, 2]:
                name = f"matmul_batch_rank{batch}_{turns}"
                draw = new(name)
                axes = draw.sizes(batch, 2, 4)
                yield product(name, attrs, draw, axes, axes, draw.sizes(3, 2, 19))
            if not turned_a:
                name = f"matmul_shared_right_{turns}"
                draw = new(name)
                yield product(name, attrs, draw, draw.sizes(2, 2, 5), [], draw.sizes(3, 5, 19))


def product(name, attrs, draw, batch_a, batch_b, extents):
    rows, inner, columns = extents
    a = [inner, rows] if attrs["transpose_a"] else [rows, inner]
    b = [columns, inner] if attrs["transpose_b"] else [inner, columns]
    # With so few sums in the result, one that cancels could be all there is to compare with.
    numbers = draw.positive if rows * columns < 16 else draw.normal
    return OpCase(name, "matmul", attrs, {"x": numbers(*batch_a, *a), "y": numbers(*batch_b, *b)})


# Name: filter height and width; channels in and out (of a group); stride, dilation, groups; the largest padding.
CONVS = {
    "1x1": ([1, 1], [(3, 20), (3, 20)], 1, 1, 1, 0),
    "1x1_strided": ([1, 1], [(3, 20), (3, 20)], [2, 3], 1, 1, 0),
    "1x1_padded": ([1, 1], [(2, 6), (2, 6)], 1, 1, 1, 2),
    "1x1_deep": ([1, 1], [(90, 130), (40, 70)], 1, 1, 1, 0),
    "3x3": ([3, 3], [(2, 9), (2, 9)], 1, 1, 1, 1),
    "3x3_deep": ([3, 3], [(33, 50), (33, 50)], 1, 1, 1, 1),
    "3x3_s2": ([3, 3], [(2, 9), (15, 18)], 2, 1, 1, 2),
    "3x3_s3": ([3, 3], [(2, 9), (2, 9)], 3, 1, 1, 1),
    "3x2_s1x2": ([3, 2], [(2, 9), (2, 9)], [1, 2], 1, 1, 2),
    "2x5_s3x1": ([2, 5], [(2, 9), (2, 9)], [3, 1], 1, 1, 3),
    "1x7": ([1, 7], [(2, 9), (2, 9)], 1, 1, 1, 3),
    "7x1": ([7, 1], [(2, 9), (2, 9)], [2, 1], 1, 1, 3),
    "4x4_s2": ([4, 4], [(2, 9), (2, 9)], 2, 1, 1, 2),
    "5x5_one_in": ([5, 5], [(1, 1), (2, 9)], 1, 1, 1, 2),
    "5x5_one_out": ([5, 5], [(2, 9), (1, 1)], 1, 1, 1, 2),
    "7x7_s2": ([7, 7], [(3, 3), (15, 18)], 2, 1, 1, 3),
    "3x3_d2": ([3, 3], [(2, 9), (2, 9)], 1, 2, 1, 2),
    "3x2_d1x3": ([3, 2], [(2, 9), (2, 9)], 1, [1, 3], 1, 3),
    "3x3_d2_s2": ([3, 3], [(2, 9), (2, 9)], 2, 2, 1, 2),
    "grouped_2": ([3, 3], [(2, 5), (2, 5)], 1, 1, 2, 1),
    "grouped_5_s2": ([3, 3], [(2, 4), (3, 4)], 2, 1, 5, 1),
    "grouped_3_1x1": ([1, 1], [(4, 6), (2, 9)], 1, 1, 3, 0),
    "grouped_3_d2": ([2, 3], [(2, 3), (2, 3)], 1, 2, 3, 2),
}

# Name: filter height and width; channels; outputs a channel; stride, dilation; the largest padding.
DEPTHWISES = {
    "3x3": ([3, 3], (3, 15), 1, 1, 1, 1),
    "3x3_wide": ([3, 3], (33, 70), 1, 1, 1, 1),
    "3x3_s2": ([3, 3], (16, 20), 1, 2, 1, 1),
    "5x3_s1x2": ([5, 3], (3, 9), 1, [1, 2], 1, 2),
    "7x7": ([7, 7], (3, 9), 1, 1, 1, 3),
    "3x3_d2": ([3, 3], (3, 9), 1, 1, 2, 2),
    "2x2_s2": ([2, 2], (3, 9), 1, 2, 1, 0),
    "3x3_two_each": ([3, 3], (3, 9), 2, 1, 1, 1),
}


def convs(new):
    for kind, (window, channels, stride, dilation, groups, padding) in CONVS.items():
        name = f"conv2d_{kind}"
        draw = new(name)
        given, made = [draw.size(*c) for c in channels]
        w = draw.normal(*window, given, made * groups, scale=0.5)
        x, attrs = image(draw, given * groups, stride, dilation, padding)
        yield OpCase(name, "conv2d", attrs | {"groups": groups}, {"x": x, "w": w})
    for kind, (window, channels, each, stride, dilation, padding) in DEPTHWISES.items():
        name = f"depthwise_{kind}"
        draw = new(name)
        channels = draw.size(*channels)
        w = draw.normal(*window, 1, channels * each)
        x, attrs = image(draw, channels, stride, dilation, padding)
        yield OpCase(name, "conv2d", attrs | {"groups": channels}, {"x": x, "w": w})
    draw = new("depthwise_by_name")
    channels = draw.size(3, 9)
    x, attrs = image(draw, channels, 1, 1, 1)
    yield OpCase("depthwise_by_name", "depthwise_conv2d", attrs, {"x": x, "w": draw.normal(3, 2, 1, channels)})


def image(draw, channels, stride, dilation, padding):
    """An image that any of the filters fits into, and the geometry."""
    batch, height, width = draw.size(1, 3), draw.size(7, 13), draw.size(7, 13)
    attrs = {"stride": stride, "pad_tblr": draw.sizes(4, 0, padding), "dilation": dilation}
    return draw.normal(batch, height, width, channels), attrs


# Name: filter height and width; stride, dilation, groups; the largest padding; rows and columns more than needed.
TRANSPOSED_CONVS = {
    "2x2_s1": ([2, 2], 1, 1, 1, 0, 0),
    "2x2_s2": ([2, 2], 2, 1, 1, 0, 0),
    "2x2_s3": ([2, 2], 3, 1, 1, 0, 0),
    "3x3_s1": ([3, 3], 1, 1, 1, 1, 0),
    "3x3_s2": ([3, 3], 2, 1, 1, 1, 0),
    "3x3_s2_more": ([3, 3], 2, 1, 1, 1, 1),
    "3x3_s3": ([3, 3], 3, 1, 1, 1, [2, 1]),
    "4x4_s1": ([4, 4], 1, 1, 1, 2, 0),
    "4x4_s2": ([4, 4], 2, 1, 1, 1, 0),
    "4x4_s3": ([4, 4], 3, 1, 1, 1, 0),
    "1x1_s2": ([1, 1], 2, 1, 1, 0, 0),
    "2x3_s3x1": ([2, 3], [3, 1], 1, 1, 1, 0),
    "3x3_d2": ([3, 3], 1, 2, 1, 2, 0),
    "grouped_2": ([3, 3], 2, 1, 2, 1, 0),
}


def transposed_convs(new):
    for kind, (window, stride, dilation, groups, padding, more) in TRANSPOSED_CONVS.items():
        name = f"conv2d_transpose_{kind}"
        draw = new(name)
        given, made = draw.sizes(2, 2, 9)
        x = draw.normal(draw.size(1, 3), draw.size(4, 7), draw.size(4, 7), given * groups)
        attrs = {"stride": stride, "pad_tblr": draw.sizes(4, 0, padding), "dilation": dilation}
        attrs |= {"groups": groups, "output_padding": more}
        inputs = {"x": x, "w": draw.normal(*window, made, given * groups, scale=0.5)}
        yield OpCase(name, "conv2d_transpose", attrs, inputs)


def attentions(new):
    for kind, sequence, dim in [("tiny", (1, 4), (1, 5)), ("odd", (11, 31), (5, 13)), ("tiles", (65, 100), (16, 24))]:
        for causal in [False, True]:
            name = f"attention_{kind}_{'causal' if causal else 'full'}"
            draw = new(name)
            shape = [draw.size(1, 2), draw.size(1, 3), draw.size(*sequence), draw.size(*dim)]
            # A row with a single key gives q and k no gradient: nothing but rounding would be left to compare.
            shape[2] = max(shape[2], 2)
            inputs = {n: draw.normal(*shape) for n in "qkv"}
            yield OpCase(name, "attention", {"causal": causal, "layout": "batch,heads,seq,dim"}, inputs)
    draw = new("attention_crossing")
    batch, heads, dim = draw.sizes(3, 2, 6)
    queries, keys = draw.sizes(2, 5, 40)
    inputs = {"q": draw.normal(batch, heads, queries, dim), "k": draw.normal(batch, heads, keys, dim)}
    inputs["v"] = draw.normal(batch, heads, keys, dim + draw.size(1, 5))
    yield OpCase("attention_crossing", "attention", {"causal": False, "scale": draw.between(0.1, 0.9)}, inputs)


# ---- windows ---------------------------------------------------------------------------------------------------------


def pools(new):
    # Name: size, stride, the largest padding.
    kinds = {"2x2": (2, 2, 0), "3x3_s1": (3, 1, 1), "3x3_s2": (3, 2, 1), "5x5_s3": (5, 3, 2), "3x3_s3": (3, 3, 0)}
    kinds |= {"2x3_s1x2": ([2, 3], [1, 2], 1), "5x1": ([5, 1], [2, 1], 0), "2x2_s3": (2, 3, 1), "7x7_s7": (7, 7, 0)}
    for kind, (size, stride, padding) in kinds.items():
        for op in ["max_pool", "avg_pool"]:
            name = f"{op}_{kind}"
            draw = new(name)
            shape = [draw.size(1, 3), draw.size(7, 14), draw.size(7, 14), draw.pick([1, 3, 7, 16, 19, 33])]
            attrs = {"size": size, "stride": stride, "pad_tblr": draw.sizes(4, 0, padding)}
            yield OpCase(name, op, attrs, {"x": draw.distinct(*shape)})
    for op in ["global_avg_pool", "global_max_pool"]:
        draw = new(op)
        yield OpCase(op, op, {}, {"x": draw.distinct(*draw.sizes(3, 2, 9), draw.size(3, 37))})


def upsamplings(new):
    for op in ["upsample_nearest", "upsample_bilinear"]:
        for factor in [2, 3, [2, 3], [1, 4]]:
            name = f"{op}_" + "x".join(map(str, factor if isinstance(factor, list) else [factor]))
            draw = new(name)
            yield OpCase(name, op, {"factor": factor}, {"x": draw.normal(*draw.sizes(4, 1, 8))})


# ---- norms, softmax, losses, gather ----------------------------------------------------------------------------------


def norms(new):
    for channels in [3, 16, 17, 37]:
        yield from batch_norms(new, channels)
        for op in ["layer_norm", "rms_norm"]:
            name = f"{op}_{channels}"
            draw = new(name)
            shape = [*draw.sizes(draw.size(1, 3), 2, 7), channels]
            yield OpCase(name, op, {"eps": draw.pick([1e-6, 1e-5, 1e-3])}, affine(draw, shape, op == "layer_norm"))
    draw = new("layer_norm_long")
    yield OpCase("layer_norm_long", "layer_norm", {"eps": 1e-5}, affine(draw, [7, draw.size(300, 500)]))
    for groups, each in [(1, 5), (3, 3), (4, 8), (5, 7), (13, 1)]:
        name = f"group_norm_{groups}x{each}"
        draw = new(name)
        shape = [draw.size(1, 3), *draw.sizes(2, 2, 7), groups * each]
        yield OpCase(name, "group_norm", {"groups": groups, "eps": draw.pick([1e-5, 1e-3])}, affine(draw, shape))


def batch_norms(new, channels):
    for rank in [2, 4]:
        name = f"batch_norm_{channels}_rank{rank}"
        draw = new(name)
        attrs = {"eps": draw.pick([1e-5, 1e-3])}
        shape = [draw.size(5, 17), *draw.sizes(rank - 2, 2, 7), channels]
        yield OpCase(name, "batch_norm", attrs, affine(draw, shape))
        inputs = affine(draw, shape) | {"mean": draw.normal(channels), "var": draw.positive(channels)}
        yield OpCase(f"{name}_inference", "batch_norm_inference", attrs, inputs, grads=["x", "scale", "bias"])


def affine(draw, shape, bias=True):
    inputs = {"x": draw.normal(*shape, scale=2, shift=0.7), "scale": draw.normal(shape[-1], shift=1)}
    return inputs | ({"bias": draw.normal(shape[-1])} if bias else {})


def softmaxes(new):
    for op in ["softmax", "log_softmax"]:
        for kind, rank, axis in [("last", 2, -1), ("first", 2, 0), ("middle", 3, 1), ("heads", 4, 3), ("vector", 1, 0)]:
            name = f"{op}_{kind}"
            draw = new(name)
            # Rows far from one-hot: where one share is nearly 1, the gradient is what cancellation leaves.
            x = draw.normal(*draw.sizes(rank, 3, 13), scale=2)
            yield OpCase(name, op, {"axis": axis}, {"x": x})
        name = f"{op}_long"
        yield OpCase(name, op, {}, {"x": new(name).normal(3, 519, scale=20)})


def losses(new):
    for reduction in ["mean", "sum", "none"]:
        for smoothing in [0.0, 0.2]:
            for rank in [2, 3]:
                name = f"cross_entropy_{reduction}_{'smoothed' if smoothing else 'plain'}_rank{rank}"
                draw = new(name)
                *rows, classes = draw.sizes(rank, 2, 9)
                attrs = {"reduction": reduction} | ({"label_smoothing": smoothing} if smoothing else {})
                logits = draw.normal(*rows, classes, scale=3)
                classed = {"logits": logits, "labels": draw.whole(*rows, below=classes)}
                op = "softmax_cross_entropy" if smoothing else "sparse_softmax_cross_entropy"
                yield OpCase(name, op, attrs, classed)
                shared = {"logits": logits, "labels": draw.shares(*rows, classes)}
                yield OpCase(f"{name}_dense", "softmax_cross_entropy", attrs, shared, grads=["logits"])
        draw = new(f"sigmoid_cross_entropy_{reduction}")
        shape = draw.sizes(3, 2, 7)
        shared = {"logits": draw.normal(*shape, scale=4), "labels": draw.shares(*shape)}
        yield OpCase(
            f"sigmoid_cross_entropy_{reduction}",
            "sigmoid_binary_cross_entropy",
            {"reduction": reduction},
            shared,
            grads=["logits"],
        )
        draw = new(f"mean_squared_error_{reduction}")
        shape = draw.sizes(2, 2, 12)
        pair = {"x": draw.normal(*shape), "y": draw.normal(*shape)}
        yield OpCase(f"mean_squared_error_{reduction}", "mean_squared_error", {"reduction": reduction}, pair)


def gathers(new):
    for rank, rows, width in [(1, 5, 3), (2, 29, 17), (3, 7, 33), (2, 200, 1)]:
        name = f"gather_rank{rank}_width{width}"
        draw = new(name)
        inputs = {"table": draw.normal(rows, width), "ids": draw.whole(*draw.sizes(rank, 3, 7), below=rows)}
        yield OpCase(name, "gather", {"axis": 0}, inputs)


# ---- optimizers and runs ---------------------------------------------------------------------------------------------


def optimizers(new):
    kinds = {"sgd": ["plain", "weight_decay"], "sgd_momentum": ["plain", "weight_decay"]}
    kinds |= {"sgd_nesterov": ["plain", "weight_decay"], "adam": ["plain", "weight_decay", "eps"]}
    kinds |= {"adamw": ["weight_decay", "usual"], "rmsprop": ["plain", "eps"], "adagrad": ["plain", "eps"]}
    for op, variants in kinds.items():
        for variant in variants:
            name = f"optim_{op}_{variant}"
            draw = new(name)
            attrs = {"lr": draw.between(0.005, 0.2)}
            attrs |= {"weight_decay": draw.between(0.01, 0.3)} if variant == "weight_decay" else {}
            attrs |= {"momentum": draw.between(0.5, 0.95)} if op in ["sgd_momentum", "sgd_nesterov"] else {}
            attrs |= {"nesterov": True} if op == "sgd_nesterov" else {}
            attrs |= {"betas": [draw.between(0.5, 0.95), draw.between(0.9, 0.99)]} if op in ["adam", "adamw"] else {}
            attrs |= {"alpha": draw.between(0.7, 0.95)} if op == "rmsprop" else {}
            attrs |= {"eps": draw.pick([1e-6, 1e-3, 0.1])} if variant == "eps" else {}
            shape = draw.sizes(draw.size(1, 4), 2, 9)
            gradients = [draw.normal(*shape) for _ in range(draw.size(4, 9))]
            yield OptimizerCase(name, op, attrs, draw.normal(*shape), gradients)


def runs(new):
    yield cnn_like_bundled(new("run_cnn"))
    yield cnn_of_other_layers(new("run_cnn_other"))
    yield gpt(new("run_gpt"), "run_gpt", "gelu tanh; untied head without bias", "adamw")
    yield gpt(new("run_gpt_other"), "run_gpt_other", "gelu erf; untied head with bias", "sgd")


CROSS_ENTROPY = "mean sparse softmax cross-entropy"


def cnn_like_bundled(draw):
    first, second, classes = draw.size(5, 19), draw.size(9, 35), draw.size(3, 12)
    init = conv_weights(draw, "conv1", [3, 3, 2, first]) | norm_weights(draw, "bn1", first)
    init |= conv_weights(draw, "conv2", [3, 3, first, second]) | norm_weights(draw, "bn2", second)
    init |= dense_weights(draw, "dense", second, classes)
    layers = "conv1 3x3 same no-bias, bn1, relu, max_pool 2x2, conv2 3x3 same no-bias, bn2, relu, global_avg_pool, dense"
    optimizer = f"sgd lr {draw.between(0.02, 0.1)} momentum {draw.between(0.5, 0.95)} nesterov weight_decay 0.01"
    momentum = {"momentum": draw.between(0.7, 0.95), "eps": draw.pick([1e-5, 1e-3]), "variance": "biased"}
    batches = image_batches(draw, [draw.size(5, 11), 10, 8, 2], classes)
    return RunCase("run_cnn", run_spec(batches, layers=layers, bn=momentum, optimizer=optimizer), init, batches)


def cnn_of_other_layers(draw):
    first, second, hidden, classes = draw.size(3, 9), draw.size(3, 9), draw.size(5, 20), draw.size(3, 12)
    init = conv_weights(draw, "conv1", [5, 3, 3, first], bias=True)
    init |= conv_weights(draw, "conv2", [2, 2, first, second], bias=True)
    init |= dense_weights(draw, "dense1", 2 * 2 * second, hidden) | dense_weights(draw, "dense2", hidden, classes)
    layers = "conv1 5x3 same stride 2, silu, conv2 2x2, tanh, avg_pool 2x2, flatten, dense1, gelu_erf, dense2"
    optimizer = f"adam lr {draw.between(0.002, 0.01)} betas 0.8 0.95 eps 1e-4 weight_decay 0.02"
    batches = image_batches(draw, [draw.size(5, 11), 11, 10, 3], classes)
    return RunCase("run_cnn_other", run_spec(batches, layers=layers, optimizer=optimizer), init, batches)


def gpt(draw, name, ending, optimizer):
    heads, each, layers = draw.size(1, 4), draw.size(3, 9), draw.size(1, 3)
    vocab, sequence, dim = draw.size(17, 50), draw.size(5, 21), heads * each
    init = {"tok": draw.normal(vocab, dim, scale=0.3), "pos": draw.normal(sequence + 3, dim, scale=0.3)}
    for i in range(layers):
        block = f"block{i}"
        init |= norm_weights(draw, f"{block}/ln1", dim) | norm_weights(draw, f"{block}/ln2", dim)
        init |= dense_weights(draw, f"{block}/qkv", dim, 3 * dim) | dense_weights(draw, f"{block}/proj", dim, dim)
        init |= dense_weights(draw, f"{block}/fc1", dim, 4 * dim) | dense_weights(draw, f"{block}/fc2", 4 * dim, dim)
    init |= norm_weights(draw, "ln_f", dim) | dense_weights(draw, "head", dim, vocab, bias="with bias" in ending)
    words = {
        "adamw": f"adamw lr {draw.between(0.002, 0.01)} betas 0.85 0.97 eps 1e-6 weight_decay 0.05 on every tensor",
        "sgd": f"sgd lr {draw.between(0.05, 0.2)} momentum {draw.between(0.5, 0.95)}",
    }
    shape = [draw.size(2, 5), sequence]
    batches = [(draw.whole(*shape, below=vocab), draw.whole(*shape, below=vocab)) for _ in range(draw.size(3, 6))]
    block = f"pre-layer-norm eps 1e-5; qkv packed as [q|k|v] columns, heads contiguous within each; {ending}"
    sizes = {"vocab": vocab, "seq": sequence, "dim": dim, "heads": heads, "layers": layers, "block": block}
    return RunCase(name, run_spec(batches, **sizes, optimizer=words[optimizer]), init, batches)


def run_spec(batches, **spec):
    return spec | {"loss": CROSS_ENTROPY, "batch": batches[0][0].shape[0], "steps": len(batches)}


def image_batches(draw, shape, classes):
    return [(draw.normal(*shape), draw.whole(shape[0], below=classes)) for _ in range(draw.size(3, 6))]


def conv_weights(draw, name, shape, bias=False):
    w = draw.normal(*shape, scale=float(np.prod(shape[:3])) ** -0.5)
    return {f"{name}/w": w} | ({f"{name}/b": draw.normal(shape[3], scale=0.1)} if bias else {})


def dense_weights(draw, name, given, made, bias=True):
    weights = {f"{name}/w": draw.normal(given, made, scale=given**-0.5)}
    return weights | ({f"{name}/b": draw.normal(made, scale=0.1)} if bias else {})


def norm_weights(draw, name, channels):
    return {f"{name}/scale": draw.normal(channels, scale=0.1, shift=1), f"{name}/bias": draw.normal(channels, scale=0.1)}
