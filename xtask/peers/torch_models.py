"""The workloads in PyTorch: models, losses, optimizers and data."""

import common
import torch
import torchvision
from torch import nn
from torch.nn import functional as F


# Models start as memfit's do, so that losses can be compared: torchvision's by themselves, those written here by this.
def start(module, weight):
    """Draws the weight of a layer; its bias is 0."""
    weight(module.weight)
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def he_normal(weight):
    nn.init.kaiming_normal_(weight, nonlinearity="relu")


def mlp():
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    for layer in model[::2]:
        start(layer, he_normal)
    return model


def resnet18_cifar():
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def double_conv(channels_in, channels):
    layers = []
    for n in (channels_in, channels):
        layers += [nn.Conv2d(n, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        levels = common.UNET_CHANNELS
        self.down = nn.ModuleList(double_conv(i, c) for i, c in zip((3, *levels), levels))
        self.bottom = double_conv(levels[-1], common.UNET_BOTTOM)
        above = list(zip((*levels[1:], common.UNET_BOTTOM), levels))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose2d(below, c, 2, stride=2) for below, c in above)
        self.up = nn.ModuleList(double_conv(2 * c, c) for _, c in above)
        self.out = nn.Conv2d(levels[0], 1, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                start(layer, he_normal)
            elif isinstance(layer, nn.ConvTranspose2d):
                # Its weight has the channels in before those out, so that this is the fan in.
                start(layer, lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"))
        start(self.out, nn.init.xavier_uniform_)

    def forward(self, x):
        skips = []
        for down in self.down:
            skips.append(down(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for grow, up in zip(self.grow, self.up):
            x = up(torch.cat([skips.pop(), grow(x)], 1))
        return self.out(x)


GPT_STD = 0.02


def normal(std):
    return lambda weight: nn.init.normal_(weight, std=std)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        for layer in (self.qkv, self.mlp[0]):
            start(layer, normal(GPT_STD))
        for layer in (self.project, self.mlp[2]):
            start(layer, normal(GPT_STD / (2 * common.GPT_LAYERS) ** 0.5))

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(2, (3, common.GPT_HEADS, -1))
        q, k, v = (t.transpose(1, 2) for t in heads.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        width, vocabulary = common.GPT_WIDTH, common.CLASSES["gpt"]
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(GPT_STD * torch.randn(*common.SAMPLE["gpt"], width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(common.GPT_LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))
        normal(GPT_STD)(self.tokens.weight)
        start(self.head[1], normal(GPT_STD))

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids) + self.positions))


MODELS = {"mlp": mlp, "resnet18_cifar": resnet18_cifar, "resnet50": torchvision.models.resnet50,
          "mobilenet_v3_large": torchvision.models.mobilenet_v3_large, "unet": Unet, "gpt": Gpt}


def optimizer(parameters):
    # The fused forms are the fastest on a CPU too.
    name, options = common.OPTIMIZER[common.WORKLOAD], {"lr": common.LEARNING_RATE, "fused": True}
    if name == "momentum":
        return torch.optim.SGD(parameters, momentum=common.MOMENTUM, **options)
    if name == "adamw":
        return torch.optim.AdamW(parameters, weight_decay=common.WEIGHT_DECAY, **options)
    return torch.optim.Adam(parameters, **options)


def tensors():
    x, y = (torch.from_numpy(a) for a in common.batch())
    if x.dim() == 4:
        x = x.permute(0, 3, 1, 2)
        # A permuted view already has the strides of channels-last.
        x = x if common.VARIANT.endswith("channels_last") else x.contiguous()
    if y.dim() == 4:
        return x, y.permute(0, 3, 1, 2).contiguous()
    return x.long() if common.WORKLOAD == "gpt" else x, y.long()


def loss_of(model, x, y):
    logits = model(x)
    if common.WORKLOAD == "unet":
        return F.binary_cross_entropy_with_logits(logits, y)
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


VERSIONS = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}"
