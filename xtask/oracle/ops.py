"""The ops of the golden format as jax functions of attributes and named inputs.

Says what each op means and nothing else: draws no numbers, reads and writes no files. `evaluate` adds gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def evaluate(op, attrs, inputs, grads, cotangent):
    """The output, and the gradients of Σ(out · ct) by the inputs named in `grads`.

    `cotangent` makes ct for the output. Inputs are stored types; floats are computed with as float64.
    """
    wide = {n: wider(x) for n, x in inputs.items()}
    function = lookup(op)
    if not grads:
        return jax.jit(lambda given: function(attrs, **given))(wide), None, {}
    fixed = {n: x for n, x in wide.items() if n not in grads}
    varied = {n: wide[n] for n in grads}
    shape = jax.eval_shape(lambda v: function(attrs, **v, **fixed), varied).shape
    ct = cotangent(shape)

    @jax.jit
    def both(varied, ct):
        out, back = jax.vjp(lambda v: function(attrs, **v, **fixed), varied)
        return out, back(ct)[0]

    out, gradients = both(varied, wider(ct))
    return out, ct, gradients


def wider(x):
    return jnp.asarray(x, jnp.float64) if np.issubdtype(np.asarray(x).dtype, np.floating) else jnp.asarray(x)


def lookup(op):
    """An op by its name; a parameter may stand behind it: leaky_relu_0.2."""
    if op in OPS:
        return OPS[op]
    name, _, parameter = op.rpartition("_")
    return lambda attrs, x: OPS[name]({"alpha": float(parameter)}, x)


# ---- elementwise -----------------------------------------------------------------------------------------------------


def unary(f):
    return lambda attrs, x: f(x)


def binary(f):
    return lambda attrs, x, y: f(x, y)


def compare(f):
    return lambda attrs, x, y: f(x, y).astype(jnp.int32)


def leaky_relu(attrs, x):
    return jnp.where(x > 0, x, attrs.get("alpha", 0.01) * x)


def elu(attrs, x):
    return jax.nn.elu(x, attrs.get("alpha", 1.0))


def select(attrs, condition, x, y):
    return jnp.where(condition != 0, x, y)


def cast(attrs, x):
    # Through float32, which is what was stored: rounding twice is not the same as rounding once.
    return x.astype(jnp.float32).astype(attrs["to"])


# ---- reduce, layout --------------------------------------------------------------------------------------------------


def reduce(f):
    def reduced(attrs, x):
        axes = attrs.get("axes", list(range(x.ndim)))
        return f(x, axis=tuple(axes) if isinstance(axes, list) else axes, keepdims=attrs.get("keepdims", False))

    return reduced


def sum_squares(x, axis, keepdims):
    return jnp.sum(x * x, axis=axis, keepdims=keepdims)


def transpose(attrs, x):
    return jnp.transpose(x, attrs.get("perm"))


def slice_(attrs, x):
    return lax.slice(x, attrs["start"], attrs["stop"])


def concat(attrs, **inputs):
    return jnp.concatenate([inputs[n] for n in sorted(inputs)], attrs["axis"])


# ---- contractions ----------------------------------------------------------------------------------------------------


def matmul(attrs, x, y):
    x = jnp.swapaxes(x, -1, -2) if attrs.get("transpose_a") else x
    y = jnp.swapaxes(y, -1, -2) if attrs.get("transpose_b") else y
    return jnp.matmul(x, y)


def pair(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def image_pads(attrs):
    top, bottom, left, right = attrs.get("pad_tblr", [0] * 4)
    return [(top, bottom), (left, right)]


def conv2d(attrs, x, w):
    return lax.conv_general_dilated(
        x,
        w,
        pair(attrs.get("stride", 1)),
        image_pads(attrs),
        rhs_dilation=pair(attrs.get("dilation", 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=attrs.get("groups", 1),
    )


def depthwise_conv2d(attrs, x, w):
    return conv2d({"groups": x.shape[3], **attrs}, x, w)


def conv2d_transpose(attrs, x, w):
    """A convolution of the spread-out image by the turned filter. Filters are H,W,Cout/groups,Cin."""
    groups = attrs.get("groups", 1)
    stride, dilation = pair(attrs.get("stride", 1)), pair(attrs.get("dilation", 1))
    pads = []
    for i, (before, after) in enumerate(image_pads(attrs)):
        reach = (w.shape[i] - 1) * dilation[i]
        pads.append((reach - before, reach - after + pair(attrs.get("output_padding", 0))[i]))
    height, width, made, given = w.shape
    turned = w[::-1, ::-1].reshape(height, width, made, groups, given // groups)
    turned = turned.transpose(0, 1, 4, 3, 2).reshape(height, width, given // groups, groups * made)
    return lax.conv_general_dilated(
        x,
        turned,
        (1, 1),
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def attention(attrs, q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * attrs.get("scale", q.shape[-1] ** -0.5)
    if attrs.get("causal", False):
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(seen, scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


# ---- windows ---------------------------------------------------------------------------------------------------------


def windows(attrs, x, start, combine):
    height, width = pair(attrs["size"])
    strides = pair(attrs.get("stride", attrs["size"]))
    pads = [(0, 0), *image_pads(attrs), (0, 0)]
    return lax.reduce_window(x, start, combine, (1, height, width, 1), (1, *strides, 1), pads)


def max_pool(attrs, x):
    return windows(attrs, x, -np.inf, lax.max)


def avg_pool(attrs, x):
    # Padding is not counted in the mean.
    return windows(attrs, x, 0.0, lax.add) / windows(attrs, jnp.ones_like(x), 0.0, lax.add)


def upsample_nearest(attrs, x):
    height, width = pair(attrs.get("factor", 2))
    return jnp.repeat(jnp.repeat(x, height, axis=1), width, axis=2)


def upsample_bilinear(attrs, x):
    height, width = pair(attrs.get("factor", 2))
    shape = (x.shape[0], x.shape[1] * height, x.shape[2] * width, x.shape[3])
    return jax.image.resize(x, shape, "linear")


# ---- norms -----------------------------------------------------------------------------------------------------------


def normal(x, axes, eps):
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred * centred, axes, keepdims=True) + eps)


def batch_norm(attrs, x, scale, bias):
    return normal(x, tuple(range(x.ndim - 1)), attrs["eps"]) * scale + bias


def batch_norm_inference(attrs, x, scale, bias, mean, var):
    return (x - mean) / jnp.sqrt(var + attrs["eps"]) * scale + bias


def layer_norm(attrs, x, scale, bias):
    return normal(x, -1, attrs["eps"]) * scale + bias


def rms_norm(attrs, x, scale):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + attrs["eps"]) * scale


def group_norm(attrs, x, scale, bias):
    groups = attrs["groups"]
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    return normal(grouped, (1, 3), attrs["eps"]).reshape(x.shape) * scale + bias


# ---- softmax, losses, gather -----------------------------------------------------------------------------------------

REDUCTIONS = {"mean": jnp.mean, "sum": jnp.sum, "none": lambda each: each}


def reduction(attrs, each):
    return REDUCTIONS[attrs.get("reduction", "mean")](each)


def softmax_cross_entropy(attrs, logits, labels):
    """Labels are classes, or a distribution for each row."""
    classes = logits.shape[-1]
    smoothing = attrs.get("label_smoothing", 0.0)
    shares = jax.nn.one_hot(labels, classes) if jnp.issubdtype(labels.dtype, jnp.integer) else labels
    shares = shares * (1 - smoothing) + smoothing / classes
    return reduction(attrs, -jnp.sum(shares * jax.nn.log_softmax(logits, axis=-1), axis=-1))


def sigmoid_cross_entropy(attrs, logits, labels):
    each = -labels * jax.nn.log_sigmoid(logits) - (1 - labels) * jax.nn.log_sigmoid(-logits)
    return reduction(attrs, each)


def mean_squared_error(attrs, x, y):
    return reduction(attrs, (x - y) ** 2)


OPS = {
    "neg": unary(jnp.negative),
    "abs": unary(jnp.abs),
    "exp": unary(jnp.exp),
    "log": unary(jnp.log),
    "sqrt": unary(jnp.sqrt),
    "rsqrt": unary(lax.rsqrt),
    "tanh": unary(jnp.tanh),
    "sigmoid": unary(jax.nn.sigmoid),
    "relu": unary(jax.nn.relu),
    "relu6": unary(jax.nn.relu6),
    "leaky_relu": leaky_relu,
    "elu": elu,
    "softplus": unary(jax.nn.softplus),
    "hardsigmoid": unary(jax.nn.hard_sigmoid),
    "hardswish": unary(jax.nn.hard_swish),
    "silu": unary(jax.nn.silu),
    "gelu_tanh": unary(lambda x: jax.nn.gelu(x, approximate=True)),
    "gelu_erf": unary(lambda x: jax.nn.gelu(x, approximate=False)),
    "add": binary(jnp.add),
    "sub": binary(jnp.subtract),
    "mul": binary(jnp.multiply),
    "div": binary(jnp.divide),
    "min": binary(jnp.minimum),
    "max": binary(jnp.maximum),
    "pow": binary(jnp.power),
    "eq": compare(jnp.equal),
    "ne": compare(jnp.not_equal),
    "lt": compare(jnp.less),
    "le": compare(jnp.less_equal),
    "gt": compare(jnp.greater),
    "ge": compare(jnp.greater_equal),
    "select": select,
    "cast": cast,
    "reduce_sum": reduce(jnp.sum),
    "reduce_mean": reduce(jnp.mean),
    "reduce_max": reduce(jnp.max),
    "reduce_sum_squares": reduce(sum_squares),
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "broadcast": lambda attrs, x: jnp.broadcast_to(x, attrs["shape"]),
    "transpose": transpose,
    "slice": slice_,
    "concat": concat,
    "pad": lambda attrs, x: jnp.pad(x, attrs["pads"]),
    "matmul": matmul,
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "conv2d_transpose": conv2d_transpose,
    "attention": attention,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "global_avg_pool": lambda attrs, x: jnp.mean(x, (1, 2)),
    "global_max_pool": lambda attrs, x: jnp.max(x, (1, 2)),
    "upsample_nearest": upsample_nearest,
    "upsample_bilinear": upsample_bilinear,
    "batch_norm": batch_norm,
    "batch_norm_inference": batch_norm_inference,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "softmax": lambda attrs, x: jax.nn.softmax(x, axis=attrs.get("axis", -1)),
    "log_softmax": lambda attrs, x: jax.nn.log_softmax(x, axis=attrs.get("axis", -1)),
    "softmax_cross_entropy": softmax_cross_entropy,
    "sparse_softmax_cross_entropy": softmax_cross_entropy,
    "sigmoid_cross_entropy": sigmoid_cross_entropy,
    "sigmoid_binary_cross_entropy": sigmoid_cross_entropy,
    "mean_squared_error": mean_squared_error,
    "gather": lambda attrs, table, ids: table[ids],
}
