"""Writes snapshot.pickle, and what is true of it into snapshot.json, both beside this file.

The form is that of PyTorch 2: torch/cuda/memory.py (`_snapshot`, whose documentation is the schema), torch/csrc/cuda/Module.cpp
and torch/csrc/cuda/memory_snapshot.cpp. No device is needed: a small model of c10/cuda/CUDACachingAllocator.cpp hands out
addresses, with its rounding to 512 bytes, its segments of 2 MiB, 20 MiB or multiples of 2 MiB, its splitting and its merging,
and events have the sizes that PyTorch's have: of a buffer as requested, of a segment as the device gave it. What is true is what
the model counted while it ran, not what its events say.

    python3 torch_snapshot.py [STEPS LAYERS FOLDER]
"""

import json
import pathlib
import pickle
import random
import sys

MIB = 1 << 20


class Block:
    def __init__(self, segment, address, size):
        self.segment, self.address, self.size = segment, address, size
        self.requested, self.state, self.frames = 0, "inactive", []


class Segment:
    def __init__(self, address, size, is_small):
        self.address, self.size, self.is_small = address, size, is_small
        self.blocks = [Block(self, address, size)]


class Allocator:
    def __init__(self, base):
        self.segments, self.next_address = [], base
        self.trace = None
        self.requested = self.reserved = 0
        self.peak_requested = self.peak_reserved = 0
        self.time = 1_700_000_000_000_000

    def record(self):
        self.trace, self.before = [], sum(b.state != "inactive" for s in self.segments for b in s.blocks)
        self.peak_requested, self.peak_reserved = self.requested, self.reserved
        self.allocations = 0

    def event(self, action, address, size, frames):
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        if self.trace is not None:
            self.time += 7
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time}
            if action == "oom":
                entry["device_free"] = entry.pop("addr")
            entry["frames"] = frames
            self.trace.append(entry)

    def alloc(self, requested, frames):
        size = max(512, -(-requested // 512) * 512)
        is_small = size <= MIB
        free = [
            b for s in self.segments if s.is_small == is_small for b in s.blocks if b.state == "inactive" and b.size >= size
        ]
        block = min(free, key=lambda b: (b.size, b.address), default=None)
        if block is None:
            given = 2 * MIB if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            segment = Segment(self.next_address, given, is_small)
            self.next_address += given + 32 * MIB
            self.segments.append(segment)
            self.reserved += given
            self.event("segment_alloc", segment.address, given, frames)
            block = segment.blocks[0]
        rest = block.size - size
        if rest >= 512 if is_small else rest > MIB:
            blocks = block.segment.blocks
            blocks.insert(blocks.index(block) + 1, Block(block.segment, block.address + size, rest))
            block.size = size
        block.requested, block.state, block.frames = requested, "active_allocated", frames
        self.requested += requested
        if self.trace is not None:
            self.allocations += 1
        self.event("alloc", block.address, requested, frames)
        return block

    def request_free(self, block, frames):
        block.state = "active_pending_free"
        self.event("free_requested", block.address, block.requested, frames)

    def complete_free(self, block, frames):
        self.requested -= block.requested
        self.event("free_completed", block.address, block.requested, frames)
        block.state, block.frames = "inactive", []
        blocks = block.segment.blocks
        at = blocks.index(block)
        for first, second in [(at, at + 1), (at - 1, at)]:
            if 0 <= first and second < len(blocks):
                left, right = blocks[first], blocks[second]
                if left.state == right.state == "inactive":
                    left.size += right.size
                    blocks.remove(right)

    def free(self, block, frames):
        self.request_free(block, frames)
        self.complete_free(block, frames)

    def empty_cache(self, frames):
        for segment in [s for s in self.segments if all(b.state == "inactive" for b in s.blocks)]:
            self.segments.remove(segment)
            self.reserved -= segment.size
            self.event("segment_free", segment.address, segment.size, frames)

    def state(self, device):
        def block(b):
            return {
                "address": b.address, "size": b.size, "requested_size": b.requested, "state": b.state, "frames": b.frames,
            }

        def segment(s):
            active = [b for b in s.blocks if b.state != "inactive"]
            return {
                "device": device, "address": s.address, "total_size": s.size,
                "allocated_size": sum(b.size for b in active if b.state == "active_allocated"),
                "active_size": sum(b.size for b in active), "requested_size": sum(b.requested for b in active),
                "stream": 0, "segment_type": "small" if s.is_small else "large", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [], "blocks": [block(b) for b in s.blocks],
            }

        return [segment(s) for s in self.segments]


def frames(function, line):
    """The innermost first: C++, a library, then whoever called it."""
    return [
        {"name": "c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "filename": "CUDACachingAllocator.cpp", "line": 0},
        {"name": "forward", "filename": "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", "line": 125},
        {"name": function, "filename": "/home/someone/project/model.py", "line": line},
        {"name": "<module>", "filename": "/home/someone/project/train.py", "line": 9},
    ]


def train(allocator, steps, layers, rng):
    """Steps of a chain of layers whose batches differ in length; returns what stays alive."""
    weights = [allocator.alloc(rng.randrange(1, 12 * MIB), []) for _ in range(layers)]
    lost = allocator.alloc(3 * MIB, [])
    allocator.record()
    states, waiting = [], []
    calls = [frames("attention", 40), frames("mlp", 52)]
    backward, update = frames("backward", 80), frames("step", 91)
    allocator.free(lost, frames("main", 7))
    for step in range(steps):
        length = rng.randrange(50, 150)
        kept = []
        for layer in range(layers):
            kept.append(allocator.alloc(length * (4 + layer) * 9_001, calls[layer % 2]))
            scratch = allocator.alloc(length * 1_003, calls[layer % 2])
            # Another stream reads it still: it is free only later.
            allocator.request_free(scratch, calls[layer % 2])
            waiting.append(scratch)
            if len(waiting) > 2:
                allocator.complete_free(waiting.pop(0), calls[layer % 2])
        gradients = []
        for activation, weight in zip(reversed(kept), reversed(weights)):
            gradients.append(allocator.alloc(weight.requested, backward))
            allocator.free(activation, backward)
        if step == 0:
            states = [allocator.alloc(weight.requested, update) for weight in weights]
        for gradient in gradients:
            allocator.free(gradient, update)
        if step % 2:
            allocator.empty_cache(update)
    allocator.event("oom", 5 * MIB, 900 * MIB, calls[0])
    allocator.event("snapshot", 0, allocator.requested, [])
    return weights, states


def main():
    steps, layers = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (4, 6)
    folder = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else __file__ + "/..").resolve()
    rng = random.Random(7)
    device0, device1 = Allocator(0x7F00_0000_0000), Allocator(0x7E00_0000_0000)
    train(device0, steps, layers, rng)
    # A second device with expandable segments, which are mapped in pieces.
    device1.record()
    one = device1.alloc(3 * MIB, frames("main", 3))
    two = device1.alloc(5 * MIB, frames("main", 4))
    device1.free(one, [])
    device1.free(two, [])
    device1.empty_cache([])
    for event in device1.trace:
        event["action"] = {"segment_alloc": "segment_map", "segment_free": "segment_unmap"}.get(event["action"], event["action"])
    snapshot = {
        "segments": device0.state(0) + device1.state(1),
        "device_traces": [device0.trace, device1.trace, []],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.0, "max_split_size": -1},
        "external_annotations": [],
    }
    (folder / "snapshot.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
    facts = [
        {
            "events": len(a.trace), "buffers": a.allocations + a.before, "before": a.before,
            "peak_live": a.peak_requested, "peak_reserved": a.peak_reserved, "reserved": a.reserved,
        }
        for a in [device0, device1]
    ]
    (folder / "snapshot.json").write_text(json.dumps(facts, indent=1) + "\n")


main()
