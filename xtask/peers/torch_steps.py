"""Training steps in PyTorch. Variants: eager, eager_channels_last, compiled, compiled_channels_last."""

import common
import torch
from torch_models import MODELS, VERSIONS, loss_of, optimizer, tensors


def main():
    torch.set_num_threads(common.THREADS)
    torch.manual_seed(1)
    model = MODELS[common.WORKLOAD]().train()
    if common.VARIANT.endswith("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    x, y = tensors()
    update = optimizer(model.parameters())

    def loss(x, y):
        return loss_of(model, x, y)

    forward = torch.compile(loss) if common.VARIANT.startswith("compiled") else loss

    def step():
        update.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        update.step()
        return loss.item()

    parameters = sum(p.numel() for p in model.parameters())
    common.measure(step, parameters, VERSIONS)


main()
