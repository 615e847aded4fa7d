"""Weights of torchvision and timm through memfit: random ones, saved as people save them, have to give the same logits.

    foreign_weights.py DIR -- COMMAND…    COMMAND starts the example `logits` of memfit-run; DIR takes the files
    foreign_weights.py --names DIR        writes what tests have: names and shapes of each state dict, and small files

Only torchvision and timm say what the logits are; nothing here knows how memfit names or stores a tensor.
"""

import argparse
import collections
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import timm
import torch
import torchvision
from safetensors.torch import save_file

# memfit's name of each network, and torchvision's and timm's.
MODELS = {
    "resnet18": ("resnet18", "resnet18"),
    "resnet34": ("resnet34", "resnet34"),
    "resnet50": ("resnet50", "resnet50"),
    "resnet101": ("resnet101", "resnet101"),
    "vgg16": ("vgg16", "vgg16"),
    "mobilenet_v3_small": ("mobilenet_v3_small", "mobilenetv3_small_100"),
    "mobilenet_v3_large": ("mobilenet_v3_large", "mobilenetv3_large_100"),
    "efficientnet_b0": ("efficientnet_b0", "efficientnet_b0"),
    "vit_b16": ("vit_b_16", "vit_base_patch16_224"),
}
TOLERANCE = 1e-4
IMAGES = 2


def main():
    warnings.filterwarnings("ignore")
    if len(sys.argv) == 3 and sys.argv[1] == "--names":
        write_names(Path(sys.argv[2]))
        return write_files(Path(sys.argv[2]))
    directory, dashes, *logits = sys.argv[1:] + [""] * max(0, 3 - len(sys.argv))
    if dashes != "--" or not logits:
        sys.exit(__doc__)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.set_num_threads(2)
    with torch.inference_mode():
        worst = max(check(directory, logits, name, kind) for name in MODELS for kind in ["torchvision", "timm"])
    print(f"{2 * len(MODELS)} networks, the largest difference {worst:.1e} of the largest logit")


def make(name, kind):
    torchvision_name, timm_name = MODELS[name]
    if kind == "torchvision":
        return getattr(torchvision.models, torchvision_name)()
    return timm.create_model(timm_name)


def scatter(model):
    """Numbers without the zeros and ones that networks begin with, so that no weight could be mistaken for another."""
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            tensor.normal_(0, 0.1)
        elif tensor.is_floating_point() and tensor.dim() == 1:
            tensor.add_(torch.empty_like(tensor).uniform_(-0.2, 0.2))
        elif tensor.is_floating_point() and not tensor.any():
            tensor.normal_(0, 0.02)


def save(model, kind, path):
    """torchvision's as torch.save writes a state dict, timm's as Hugging Face has them."""
    if kind == "timm":
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
    else:
        torch.save({"epoch": 3, "state_dict": {f"module.{n}": t for n, t in model.state_dict().items()}}, path)


def check(directory, logits, name, kind):
    model = make(name, kind).eval()
    scatter(model)
    path = directory / (f"{name}.pth" if kind == "torchvision" else f"{name}.safetensors")
    save(model, kind, path)
    images = torch.rand(IMAGES, 3, 224, 224) * 2 - 1
    expected = model(images).numpy()
    given, written = directory / "images.f32", directory / "logits.f32"
    given.write_bytes(images.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
    done = subprocess.run([*logits, name, "1000", path, given, written], capture_output=True, text=True)
    path.unlink(missing_ok=True)
    if done.returncode != 0:
        sys.exit(f"{kind}'s {name}: {done.stderr}")
    if "missing []" not in done.stdout or "left out" in done.stdout:
        sys.exit(f"{kind}'s {name}: {done.stdout}")
    actual = np.frombuffer(written.read_bytes(), np.float32).reshape(expected.shape)
    difference = float(np.abs(actual - expected).max() / np.abs(expected).max())
    print(f"{kind}'s {name}: {done.stdout.strip()}; {difference:.1e} of the largest logit")
    if not difference <= TOLERANCE:
        sys.exit(f"{kind}'s {name} gives other logits: {difference:.1e} of the largest one, more than {TOLERANCE:.0e}")
    return difference


def write_names(directory):
    """A line a tensor: its name and sizes."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        for kind in ["torchvision", "timm"]:
            with torch.device("meta"):
                tensors = make(name, kind).state_dict()
            lines = [f"{n} {'x'.join(map(str, t.shape)) or 'scalar'}\n" for n, t in tensors.items()]
            (directory / f"{name}.{kind}.txt").write_text("".join(lines))


def counted(*shape):
    """Numbers that are exact in 16 bits too: 0, 1/64, 2/64, …"""
    return (torch.arange(torch.Size(shape).numel()) / 64).reshape(shape)


def write_files(directory):
    """A checkpoint with some weights of a mobilenet_v3_small, in the archive of today and in the format before it."""
    weights = {
        "features.0.0.weight": counted(16, 3, 3, 3).contiguous(memory_format=torch.channels_last),
        "features.0.1.weight": counted(16).bfloat16(),
        "features.0.1.running_var": counted(16).double(),
        "features.0.1.num_batches_tracked": torch.tensor(7),
        "features.1.block.0.0.weight": torch.nn.Parameter(counted(16, 1, 3, 3)),
        "features.1.block.1.fc1.weight": counted(8, 16, 1, 1).half(),
        "classifier.3.weight": counted(2, 1024).half(),
        "classifier.3.bias": counted(1000),
    }
    checkpoint = {
        "epoch": 3,
        "arch": "mobilenet_v3_small",
        "args": argparse.Namespace(lr=0.1),
        "state_dict": collections.OrderedDict((f"module.{name}", tensor) for name, tensor in weights.items()),
        "optimizer": {"state": {0: {"momentum_buffer": counted(4)}}, "param_groups": [{"lr": 0.1}]},
    }
    torch.save(checkpoint, directory / "checkpoint.pth")
    torch.save({"bias": counted(4)}, directory / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 1), directory / "module.pth")


if __name__ == "__main__":
    main()
