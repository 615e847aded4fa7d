"""Optimizer steps and the models of run cases, as jax functions in float64.

Says what training means and nothing else: draws no numbers, reads and writes no files.
"""

import jax
import jax.numpy as jnp

import ops

# ---- optimizers ------------------------------------------------------------------------------------------------------


def sgd(attrs, step, p, g, slots):
    momentum = attrs.get("momentum", 0.0)
    g = g + attrs.get("weight_decay", 0.0) * p
    v = momentum * slots.get("v", 0.0) + g
    return p - attrs["lr"] * (g + momentum * v if attrs.get("nesterov") else v), {"v": v}


def moments(attrs, step, p, g, slots):
    beta1, beta2 = attrs.get("betas", (0.9, 0.999))
    m = beta1 * slots.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * slots.get("v", 0.0) + (1 - beta2) * g * g
    unbiased_m, unbiased_v = m / (1 - beta1**step), v / (1 - beta2**step)
    return p - attrs["lr"] * unbiased_m / (jnp.sqrt(unbiased_v) + attrs.get("eps", 1e-8)), {"m": m, "v": v}


def adam(attrs, step, p, g, slots):
    return moments(attrs, step, p, g + attrs.get("weight_decay", 0.0) * p, slots)


def adamw(attrs, step, p, g, slots):
    return moments(attrs, step, p - attrs["lr"] * attrs.get("weight_decay", 0.01) * p, g, slots)


def rmsprop(attrs, step, p, g, slots):
    alpha = attrs.get("alpha", 0.99)
    v = alpha * slots.get("v", 0.0) + (1 - alpha) * g * g
    return p - attrs["lr"] * g / (jnp.sqrt(v) + attrs.get("eps", 1e-8)), {"v": v}


def adagrad(attrs, step, p, g, slots):
    v = slots.get("v", 0.0) + g * g
    return p - attrs["lr"] * g / (jnp.sqrt(v) + attrs.get("eps", 1e-10)), {"v": v}


OPTIMIZERS = {"sgd": sgd, "adam": adam, "adamw": adamw, "rmsprop": rmsprop, "adagrad": adagrad}


def optimizer(name):
    """What stands behind the first underscore is only a label: sgd_nesterov is sgd."""
    return OPTIMIZERS[name.split("_")[0]]


def steps(name, attrs, p, gradients):
    """The parameter after every step, counted from 1."""
    slots, after = {}, []
    for i, g in enumerate(gradients):
        p, slots = optimizer(name)(attrs, i + 1, p, g, slots)
        after.append(p)
    return after


def parse(text):
    """An optimizer in words, "adamw lr 0.01 betas 0.9 0.99 on every tensor", as name and attributes."""
    name, *words = text.removesuffix("on every tensor").split()
    attrs = {}
    for word in words:
        if word[0].isdigit():
            attrs[attribute].append(float(word))
        else:
            attribute = word
            attrs[attribute] = []
    plain = {0: lambda numbers: True, 1: lambda numbers: numbers[0]}
    return name, {a: plain.get(len(numbers), tuple)(numbers) for a, numbers in attrs.items()}


# ---- models ----------------------------------------------------------------------------------------------------------


def dense(weights, name, x):
    y = x @ weights[f"{name}/w"]
    return y + weights[f"{name}/b"] if f"{name}/b" in weights else y


def same_pads(image, window, stride):
    pads = []
    for extent, size in zip(image, window):
        total = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        pads += [total // 2, total - total // 2]
    return pads


def conv_layer(weights, name, words, x):
    w = weights[f"{name}/w"]
    stride = int(words[words.index("stride") + 1]) if "stride" in words else 1
    pads = same_pads(x.shape[1:3], w.shape[:2], stride) if "same" in words else [0] * 4
    y = ops.conv2d({"stride": stride, "pad_tblr": pads}, x, w)
    return y if "no-bias" in words else y + weights[f"{name}/b"]


def sequential(spec, weights, x):
    """Logits, and mean and variance of the batch for every batch norm."""
    statistics = {}
    for layer in spec["layers"].split(","):
        name, *words = layer.split()
        match name.rstrip("0123456789"):
            case "conv":
                x = conv_layer(weights, name, words, x)
            case "bn":
                statistics[f"{name}/mean"] = jnp.mean(x, (0, 1, 2))
                statistics[f"{name}/var"] = jnp.var(x, (0, 1, 2))
                x = ops.batch_norm(spec["bn"], x, weights[f"{name}/scale"], weights[f"{name}/bias"])
            case "dense":
                x = dense(weights, name, x)
            case "max_pool" | "avg_pool":
                x = ops.OPS[name]({"size": [int(n) for n in words[0].split("x")]}, x)
            case "flatten":
                x = x.reshape(x.shape[0], -1)
            case _:
                x = ops.OPS[name]({}, x)
    return x, statistics


def gpt(spec, weights, ids):
    """Logits of a decoder with pre-layer-norm blocks; it has no statistics."""
    activation = ops.OPS["gelu_erf" if "gelu erf" in spec["block"] else "gelu_tanh"]

    def norm(name, x):
        return ops.layer_norm({"eps": 1e-5}, x, weights[f"{name}/scale"], weights[f"{name}/bias"])

    x = weights["tok"][ids] + weights["pos"][: ids.shape[1]]
    for i in range(spec["layers"]):
        block = f"block{i}"
        mixed = mix(spec["heads"], dense(weights, f"{block}/qkv", norm(f"{block}/ln1", x)))
        x = x + dense(weights, f"{block}/proj", mixed)
        hidden = dense(weights, f"{block}/fc1", norm(f"{block}/ln2", x))
        x = x + dense(weights, f"{block}/fc2", activation({}, hidden))
    return dense(weights, "head", norm("ln_f", x)), {}


def mix(heads, qkv):
    """Causal attention; the columns are [q|k|v], in each of which the heads stand side by side."""
    batch, sequence, columns = qkv.shape
    apart = qkv.reshape(batch, sequence, 3, heads, columns // 3 // heads).transpose(2, 0, 3, 1, 4)
    mixed = ops.attention({"causal": True}, apart[0], apart[1], apart[2])
    return mixed.transpose(0, 2, 1, 3).reshape(batch, sequence, columns // 3)


# ---- runs ------------------------------------------------------------------------------------------------------------


def train(spec, weights, batches):
    """Losses before each update, and weights and running statistics after the last."""
    model = gpt if "heads" in spec else sequential
    name, attrs = parse(spec["optimizer"])

    def loss(weights, x, y):
        logits, statistics = model(spec, weights, x)
        return ops.softmax_cross_entropy({}, logits, y), statistics

    slope = jax.jit(jax.value_and_grad(loss, has_aux=True))
    losses, running, slots = [], {}, {n: {} for n in weights}
    for i, (x, y) in enumerate(batches):
        (value, statistics), gradients = slope(weights, x, y)
        losses.append(float(value))
        moved = {n: optimizer(name)(attrs, i + 1, w, gradients[n], slots[n]) for n, w in weights.items()}
        weights, slots = {n: m[0] for n, m in moved.items()}, {n: m[1] for n, m in moved.items()}
        for n, batch in statistics.items():
            momentum = spec["bn"]["momentum"]
            start = 0.0 if n.endswith("/mean") else 1.0
            running[n] = momentum * running.get(n, start) + (1 - momentum) * batch
    return losses, weights, running
