"""Training steps in JAX with Flax models and Optax. Variants: jit."""

import common
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class ConvBn(nn.Module):
    channels: int
    size: int
    stride: int = 1
    depthwise: bool = False
    act: callable = nn.relu

    @nn.compact
    def __call__(self, x):
        padding = [(self.size // 2, self.size // 2)] * 2
        groups = self.channels if self.depthwise else 1
        x = nn.Conv(self.channels, (self.size,) * 2, self.stride, padding, use_bias=False,
                    feature_group_count=groups)(x)
        x = nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5)(x)
        return self.act(x)


def identity(x):
    return x


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(nn.Dense(2048)(x))
        return nn.Dense(10)(x)


class Resnet(nn.Module):
    depths: tuple
    bottleneck: bool

    @nn.compact
    def __call__(self, x):
        x = ConvBn(64, 7, 2)(x) if self.bottleneck else ConvBn(64, 3)(x)
        if self.bottleneck:
            x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1)] * 2)
        for stage, depth in enumerate(self.depths):
            for i in range(depth):
                x = self.block(x, 64 << stage, 2 if i == 0 and stage > 0 else 1)
        return nn.Dense(common.CLASSES[common.WORKLOAD])(x.mean((1, 2)))

    def block(self, x, channels, stride):
        if self.bottleneck:
            y = ConvBn(channels, 3, stride)(ConvBn(channels, 1)(x))
            y = ConvBn(4 * channels, 1, act=identity)(y)
        else:
            y = ConvBn(channels, 3, act=identity)(ConvBn(channels, 3, stride)(x))
        if x.shape != y.shape:
            x = ConvBn(y.shape[-1], 1, stride, act=identity)(x)
        return nn.relu(x + y)


# Kernel, expanded channels, channels out, squeeze-and-excite, activation, stride.
MOBILENET = (
    (3, 16, 16, 0, nn.relu, 1), (3, 64, 24, 0, nn.relu, 2), (3, 72, 24, 0, nn.relu, 1),
    (5, 72, 40, 24, nn.relu, 2), (5, 120, 40, 32, nn.relu, 1), (5, 120, 40, 32, nn.relu, 1),
    (3, 240, 80, 0, nn.hard_swish, 2), (3, 200, 80, 0, nn.hard_swish, 1), (3, 184, 80, 0, nn.hard_swish, 1),
    (3, 184, 80, 0, nn.hard_swish, 1), (3, 480, 112, 120, nn.hard_swish, 1), (3, 672, 112, 168, nn.hard_swish, 1),
    (5, 672, 160, 168, nn.hard_swish, 2), (5, 960, 160, 240, nn.hard_swish, 1), (5, 960, 160, 240, nn.hard_swish, 1))


class MobilenetV3Large(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = ConvBn(16, 3, 2, act=nn.hard_swish)(x)
        for size, expanded, channels, squeeze, act, stride in MOBILENET:
            y = ConvBn(expanded, 1, act=act)(x) if expanded != x.shape[-1] else x
            y = ConvBn(expanded, size, stride, depthwise=True, act=act)(y)
            if squeeze:
                gate = nn.relu(nn.Dense(squeeze)(y.mean((1, 2), keepdims=True)))
                y = y * nn.hard_sigmoid(nn.Dense(expanded)(gate))
            y = ConvBn(channels, 1, act=identity)(y)
            x = x + y if x.shape == y.shape else y
        x = ConvBn(960, 1, act=nn.hard_swish)(x)
        x = nn.hard_swish(nn.Dense(1280)(x.mean((1, 2))))
        return nn.Dense(1000)(nn.Dropout(0.2, deterministic=False)(x))


class Unet(nn.Module):
    @nn.compact
    def __call__(self, x):
        skips = []
        for channels in common.UNET_CHANNELS:
            skips.append(ConvBn(channels, 3)(ConvBn(channels, 3)(x)))
            x = nn.max_pool(skips[-1], (2, 2), (2, 2))
        x = ConvBn(common.UNET_BOTTOM, 3)(ConvBn(common.UNET_BOTTOM, 3)(x))
        for channels in common.UNET_CHANNELS[::-1]:
            x = jnp.concatenate([skips.pop(), nn.ConvTranspose(channels, (2, 2), (2, 2))(x)], -1)
            x = ConvBn(channels, 3)(ConvBn(channels, 3)(x))
        return nn.Conv(1, (1, 1))(x)


class Gpt(nn.Module):
    @nn.compact
    def __call__(self, ids):
        width, vocabulary = common.GPT_WIDTH, common.CLASSES["gpt"]
        positions = self.param("positions", nn.initializers.normal(0.02), (ids.shape[1], width))
        x = nn.Embed(vocabulary, width)(ids) + positions
        for _ in range(common.GPT_LAYERS):
            heads = nn.Dense(3 * width)(nn.LayerNorm(epsilon=1e-5)(x))
            q, k, v = jnp.moveaxis(heads.reshape(*x.shape[:2], 3, common.GPT_HEADS, -1), 2, 0)
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + nn.Dense(width)(y.reshape(x.shape))
            y = nn.Dense(4 * width)(nn.LayerNorm(epsilon=1e-5)(x))
            x = x + nn.Dense(width)(nn.gelu(y, approximate=True))
        return nn.Dense(vocabulary, use_bias=False)(nn.LayerNorm(epsilon=1e-5)(x))


MODELS = {"mlp": Mlp, "resnet18_cifar": lambda: Resnet((2, 2, 2, 2), False),
          "resnet50": lambda: Resnet((3, 4, 6, 3), True), "mobilenet_v3_large": MobilenetV3Large,
          "unet": Unet, "gpt": Gpt}


def optimizer():
    name, rate = common.OPTIMIZER[common.WORKLOAD], common.LEARNING_RATE
    if name == "momentum":
        return optax.sgd(rate, momentum=common.MOMENTUM)
    if name == "adamw":
        return optax.adamw(rate, weight_decay=common.WEIGHT_DECAY)
    return optax.adam(rate)


def main():
    model, update = MODELS[common.WORKLOAD](), optimizer()
    x, y = (jnp.asarray(a) for a in common.batch())
    key = jax.random.key(1)
    # On one row, so that this never sets the peak of memory.
    variables = jax.jit(model.init)({"params": key, "dropout": key}, x[:1])
    weights, statistics = variables["params"], variables.get("batch_stats", {})
    state = weights, statistics, update.init(weights), jnp.zeros((), jnp.int32)

    def loss_of(weights, statistics, count, x, y):
        logits, new = model.apply({"params": weights, "batch_stats": statistics}, x, mutable=["batch_stats"],
                                  rngs={"dropout": jax.random.fold_in(key, count)})
        if common.WORKLOAD == "unet":
            loss = optax.sigmoid_binary_cross_entropy(logits, y)
        else:
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return loss.mean(), new.get("batch_stats", {})

    def train(state, x, y):
        weights, statistics, slots, count = state
        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, statistics, count, x, y)
        changes, slots = update.update(gradients, slots, weights)
        return (optax.apply_updates(weights, changes), statistics, slots, count + 1), loss

    compiled = jax.jit(train, donate_argnums=0)

    def step():
        nonlocal state
        state, loss = jax.block_until_ready(compiled(state, x, y))
        return float(loss)

    parameters = sum(p.size for p in jax.tree.leaves(weights))
    versions = f"JAX {jax.__version__}, Flax {flax.__version__}, Optax {optax.__version__}"
    del variables, weights, statistics
    common.measure(step, parameters, versions)


main()
