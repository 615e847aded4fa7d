"""Training steps in TensorFlow with Keras models. Variants: graph, xla."""

import common
import keras
import tensorflow as tf
from keras import layers


def conv_bn_relu(x, channels, size, stride=1, relu=True):
    # "same" would pad strided convolutions unevenly.
    x = layers.ZeroPadding2D(size // 2)(x) if stride > 1 and size > 1 else x
    padding = "valid" if stride > 1 else "same"
    x = layers.Conv2D(channels, size, stride, padding=padding, use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return layers.ReLU()(x) if relu else x


def mlp(x):
    for _ in range(2):
        x = layers.Dense(2048, activation="relu")(x)
    return layers.Dense(10)(x)


def resnet(x, convs_of, depths):
    for stage, depth in enumerate(depths):
        for i in range(depth):
            stride = 2 if i == 0 and stage > 0 else 1
            convs = convs_of(64 << stage, stride)
            y = x
            for n, (channels, size, step) in enumerate(convs):
                y = conv_bn_relu(y, channels, size, step, relu=n + 1 < len(convs))
            if stride > 1 or x.shape[-1] != y.shape[-1]:
                x = conv_bn_relu(x, y.shape[-1], 1, stride, relu=False)
            x = layers.ReLU()(layers.add([x, y]))
    return layers.Dense(common.CLASSES[common.WORKLOAD])(layers.GlobalAveragePooling2D()(x))


def resnet18_cifar(x):
    return resnet(conv_bn_relu(x, 64, 3), lambda c, s: [(c, 3, s), (c, 3, 1)], (2, 2, 2, 2))


def resnet50(x):
    x = layers.ZeroPadding2D(1)(conv_bn_relu(x, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2)(x)
    return resnet(x, lambda c, s: [(c, 1, 1), (c, 3, s), (4 * c, 1, 1)], (3, 4, 6, 3))


def mobilenet_v3_large(x):
    model = keras.applications.MobileNetV3Large(
        input_tensor=x, weights=None, include_preprocessing=False, classifier_activation=None)
    return model.output


def unet(x):
    skips = []
    for channels in common.UNET_CHANNELS:
        skips.append(conv_bn_relu(conv_bn_relu(x, channels, 3), channels, 3))
        x = layers.MaxPooling2D(2)(skips[-1])
    x = conv_bn_relu(conv_bn_relu(x, common.UNET_BOTTOM, 3), common.UNET_BOTTOM, 3)
    for channels in common.UNET_CHANNELS[::-1]:
        x = layers.concatenate([skips.pop(), layers.Conv2DTranspose(channels, 2, 2)(x)])
        x = conv_bn_relu(conv_bn_relu(x, channels, 3), channels, 3)
    return layers.Conv2D(1, 1)(x)


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer=keras.initializers.RandomNormal(stddev=0.02))

    def call(self, x):
        return x + self.table


def attention(x):
    width = x.shape[-1]
    heads = layers.Reshape((-1, 3, common.GPT_HEADS, width // common.GPT_HEADS))(layers.Dense(3 * width)(x))
    q, k, v = (heads[:, :, i] for i in range(3))
    y = keras.ops.dot_product_attention(q, k, v, is_causal=True)
    return layers.Dense(width)(layers.Reshape((-1, width))(y))


def gpt(ids):
    width, vocabulary = common.GPT_WIDTH, common.CLASSES["gpt"]
    x = Positions()(layers.Embedding(vocabulary, width)(ids))
    for _ in range(common.GPT_LAYERS):
        x = layers.add([x, attention(layers.LayerNormalization(epsilon=1e-5)(x))])
        y = layers.Dense(4 * width)(layers.LayerNormalization(epsilon=1e-5)(x))
        x = layers.add([x, layers.Dense(width)(keras.ops.gelu(y, approximate=True))])
    return layers.Dense(vocabulary, use_bias=False)(layers.LayerNormalization(epsilon=1e-5)(x))


MODELS = {"mlp": mlp, "resnet18_cifar": resnet18_cifar, "resnet50": resnet50,
          "mobilenet_v3_large": mobilenet_v3_large, "unet": unet, "gpt": gpt}


def optimizer():
    name, rate = common.OPTIMIZER[common.WORKLOAD], common.LEARNING_RATE
    if name == "momentum":
        return keras.optimizers.SGD(rate, momentum=common.MOMENTUM)
    if name == "adamw":
        return keras.optimizers.AdamW(rate, weight_decay=common.WEIGHT_DECAY)
    return keras.optimizers.Adam(rate)


def main():
    tf.config.threading.set_intra_op_parallelism_threads(common.THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(common.THREADS)
    keras.utils.set_random_seed(1)
    x, y = (tf.constant(a) for a in common.batch())
    inputs = keras.Input(x.shape[1:], dtype=x.dtype.name)
    model = keras.Model(inputs, MODELS[common.WORKLOAD](inputs))
    update = optimizer()
    update.build(model.trainable_variables)

    def loss_of(x, y):
        logits = model(x, training=True)
        if common.WORKLOAD == "unet":
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, logits))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    @tf.function(jit_compile=common.VARIANT == "xla")
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        update.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    parameters = sum(int(tf.size(v)) for v in model.trainable_variables)
    common.measure(lambda: float(train(x, y)), parameters, f"TensorFlow {tf.__version__}, Keras {keras.__version__}")


main()
