"""Training steps in PyTorch by two processes with a part of the batch each, over gloo on the loopback device. Variants: ddp, zero1
(DDP with ZeroRedundancyOptimizer), fsdp2 (fully_shard of every block and of the whole).

Called as the other scripts are, it starts itself once for each process. The first of them prints the results; bytes are those of the
process that has the most: `start` is resident when PyTorch is loaded and all processes have met, before there is a model.
"""

import os
import subprocess
import sys
import tempfile

PROCESSES = 2


def main():
    """Starts the processes, and ends all where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(MEMFIT_MEETING=f"{folder}/meeting", GLOO_SOCKET_IFNAME="lo")
        ranks = [subprocess.Popen([sys.executable, "-B", *sys.argv], env=dict(os.environ, MEMFIT_RANK=str(rank)))
                 for rank in range(PROCESSES)]
        codes = [rank.wait() for rank in ranks]
    sys.exit(next((code for code in codes if code), 0))


def train(rank):
    import common
    import torch
    import torch.distributed as dist
    from torch_models import MODELS, VERSIONS, Block, loss_of, optimizer, tensors

    torch.set_num_threads(common.THREADS)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEMFIT_MEETING']}", rank=rank,
                            world_size=PROCESSES)
    dist.barrier()
    start = common.resident("VmRSS")
    torch.manual_seed(1)
    model = MODELS[common.WORKLOAD]().train()
    parameters = sum(p.numel() for p in model.parameters())
    if common.VARIANT == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (PROCESSES,))
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if common.VARIANT == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        update = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=common.LEARNING_RATE,
                                         weight_decay=common.WEIGHT_DECAY, fused=True)
    else:
        update = optimizer(model.parameters())
    # What the others have is not kept.
    x, y = (t.chunk(PROCESSES)[rank].clone() for t in tensors())

    def step():
        update.zero_grad(set_to_none=True)
        loss = loss_of(model, x, y)
        loss.backward()
        update.step()
        return loss.item()

    steps = [common.timed(step) for _ in range(common.WARM_UP + common.STEPS)]
    bytes_here = torch.tensor([start, common.resident("VmHWM"), common.resident("VmHWM") - start])
    bytes_of_all = [torch.empty_like(bytes_here) for _ in range(PROCESSES)]
    dist.all_gather(bytes_of_all, bytes_here)
    if rank == 0:
        start, peak, net = max((tuple(b.tolist()) for b in bytes_of_all), key=lambda b: b[2])
        for key, value in [("start", start), ("peak", peak), ("net", net), ("parameters", parameters), ("versions", VERSIONS)]:
            common.report(key, value)
        common.report("milliseconds", *(seconds * 1e3 for seconds, _ in steps[common.WARM_UP:]))
        common.report("loss", steps[0][1])
    dist.barrier()
    dist.destroy_process_group()


if "MEMFIT_RANK" in os.environ:
    train(int(os.environ["MEMFIT_RANK"]))
else:
    main()
