"""What the scripts of all peers share: arguments, environment, workloads, and how a step is timed and reported.

Every script is called as `SCRIPT WORKLOAD VARIANT THREADS STEPS` in a process of its own and prints lines of
`result KEY VALUE...`. Import this before the framework: frameworks read the environment when they are loaded.
"""

import os
import statistics
import sys
import time

WORKLOAD, VARIANT = sys.argv[1:3]
THREADS, STEPS = map(int, sys.argv[3:5])

# NPROC is what XLA's thread pool asks for.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):
    os.environ[name] = str(THREADS)
# No GPU, where there is one.
os.environ.update(CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")
os.environ.update(KERAS_BACKEND="tensorflow", TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="2")

import numpy as np

BATCH = {"mlp": 256, "resnet18_cifar": 128, "resnet50": 16, "mobilenet_v3_large": 16, "unet": 4, "gpt": 8}
OPTIMIZER = {"mlp": "adam", "resnet18_cifar": "momentum", "resnet50": "momentum", "mobilenet_v3_large": "adam",
             "unet": "adam", "gpt": "adamw"}
SAMPLE = {"mlp": (784,), "resnet18_cifar": (32, 32, 3), "resnet50": (224, 224, 3),
          "mobilenet_v3_large": (224, 224, 3), "unet": (256, 256, 3), "gpt": (256,)}
CLASSES = {"mlp": 10, "resnet18_cifar": 10, "resnet50": 1000, "mobilenet_v3_large": 1000, "unet": 1, "gpt": 4096}
MOMENTUM, WEIGHT_DECAY, LEARNING_RATE = 0.9, 0.01, 0.001
GPT_LAYERS, GPT_WIDTH, GPT_HEADS = 6, 384, 6
UNET_CHANNELS, UNET_BOTTOM = (32, 64, 128, 256), 512

# The step after these is the first that is timed. Its loss is told, since every process gets so far, however fast it is.
WARM_UP = 2
# Short steps are repeated for so many seconds; of steps that take longer than SLOW a few are enough.
LEAST_SECONDS, SLOW, FEW = 2.0, 5.0, 3


def batch():
    """Samples and labels of the workload, images as (row, height, width, channel)."""
    rng = np.random.default_rng(1)
    rows, sample, classes = BATCH[WORKLOAD], SAMPLE[WORKLOAD], CLASSES[WORKLOAD]
    if WORKLOAD == "gpt":
        return tuple(rng.integers(0, classes, (rows, *sample), "int32") for _ in range(2))
    x = rng.standard_normal((rows, *sample), "float32")
    if WORKLOAD == "unet":
        return x, rng.integers(0, 2, (rows, *sample[:2], classes)).astype("float32")
    return x, rng.integers(0, classes, rows, "int32")


def measure(step, parameters, versions):
    """Times whole training steps. `step()` ends when all of it is done, and gives the loss as a number."""
    (_, first_loss), (seconds, _) = (timed(step) for _ in range(WARM_UP))
    wanted = min(STEPS, FEW) if seconds > SLOW else STEPS
    steps = []
    while len(steps) < wanted or sum(seconds for seconds, _ in steps) < LEAST_SECONDS:
        steps.append(timed(step))
    report("seconds", statistics.median(seconds for seconds, _ in steps))
    report("steps", len(steps))
    report("first_loss", first_loss)
    report("loss", steps[0][1])
    report("parameters", parameters)
    report("versions", versions)
    report_resident()


def timed(work):
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value


def median_seconds(work):
    """Of something that takes less than a second or so: the median of at least STEPS runs, after warming up."""
    for _ in range(WARM_UP):
        work()
    times = []
    while len(times) < STEPS or sum(times) < LEAST_SECONDS:
        times.append(timed(work)[0])
    return statistics.median(times)


def report_resident():
    """The most memory that this process had at once; its children, such as compilers, are not counted."""
    report("resident", resident("VmHWM"))


def resident(field):
    """Bytes of this process, by their name in its status: VmRSS now, VmHWM at most."""
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith(field + ":"))) * 1024


def report(key, *values):
    print("result", key, *values, flush=True)
