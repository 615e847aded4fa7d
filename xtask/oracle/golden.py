"""Golden vectors by jax, in float64, in the format of crates/exec-tests/tests/golden/README.md.

    golden.py --seed N --out DIR   writes a directory of cases; the seed varies sizes, attributes and numbers
    golden.py --check DIR          holds the oracle itself against a directory that another framework wrote

Never looks at what memfit computes: it cannot agree with it by imitation.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Every case is compiled for one run: what optimizing takes is never won back.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

import cases  # noqa: E402 (jax is set up before anything is made with it)
import ops  # noqa: E402
import training  # noqa: E402

# Stored numbers are float32, which is exact to 6e-8.
CHECK_TOLERANCE = 1e-6
# Trainings from initial weights that round to the stored ones, to see what their rounding alone does.
JITTERED_RUNS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="varies sizes, attributes and numbers")
    parser.add_argument("--out", type=Path, help="the directory to write")
    parser.add_argument("--check", type=Path, metavar="DIR", help="a directory to hold the oracle against")
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.check is None):
        parser.error("give one of --out and --check")
    if arguments.check:
        check(arguments.check)
    else:
        write(arguments.out, arguments.seed)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(directory, seed):
    listed, tensors = [], {}
    for entry, made in together(lambda case: RECORD[type(case)](case), cases.all_cases(seed)):
        case = entry["case"]
        if any(case == e["case"] for e in listed):
            sys.exit(f"two cases are called {case}")
        listed.append(entry)
        tensors |= {f"{case}/{name}": stored(f"{case}/{name}", x) for name, x in made.items()}
    directory.mkdir(parents=True, exist_ok=True)
    made_with = f"jax {jax.__version__}, float64, stored as float32, seed {seed}"
    text = json.dumps({"made_with": made_with, "cases": listed}, indent=1)
    (directory / "golden.json").write_text(text)
    save_file(tensors, directory / "golden.safetensors")
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{len(listed)} cases, {size / 1e6:.1f} MB, seed {seed}: {directory}")


def together(f, given):
    """f of each, in order, on all cores: nearly all the time goes into compiling, which waits for nobody."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(f, given))


def stored(name, x):
    x = np.asarray(x)
    whole = np.issubdtype(x.dtype, np.integer) or x.dtype == bool
    x = np.array(x, np.int32 if whole else np.float32, order="C")
    if not np.isfinite(x).all():
        sys.exit(f"{name} is not finite: the case is not a fair one")
    return x


def record_op(case):
    out, ct, gradients = ops.evaluate(case.op, case.attrs, case.inputs, case.grads, case.cotangent)
    shapes = {n: list(x.shape) for n, x in case.inputs.items()}
    entry = {"case": case.name, "op": case.op, "attrs": case.attrs, "inputs": shapes}
    entry |= {"out": list(out.shape), "grads": case.grads}
    tensors = {f"in/{n}": x for n, x in case.inputs.items()} | {"out": out}
    if case.grads:
        tensors |= {"ct": ct} | {f"grad/{n}": g for n, g in gradients.items()}
    return entry, tensors


def record_optimizer(case):
    after = training.steps(case.op, case.attrs, ops.wider(case.start), [ops.wider(g) for g in case.gradients])
    entry = {"case": case.name, "op": case.op, "attrs": case.attrs, "steps": len(case.gradients)}
    tensors = {"in/p": case.start}
    for i, (g, p) in enumerate(zip(case.gradients, after)):
        tensors |= {f"in/g{i}": g, f"p{i}": p}
    return entry, tensors


def record_run(case):
    losses, final, running = run(case.spec, case.init, case.batches)
    entry = {"case": case.name, "op": "run", "spec": case.spec, "losses": losses}
    tensors = {f"init/{n}": w for n, w in case.init.items()} | {f"final/{n}": w for n, w in final.items()}
    tensors |= {f"state/{n}": s for n, s in running.items()}
    for i, (x, y) in enumerate(case.batches):
        tensors |= {f"x{i}": x, f"y{i}": y}
    return entry, tensors


def run(spec, init, batches):
    wide = {n: ops.wider(w) for n, w in init.items()}
    return training.train(spec, wide, [(ops.wider(x), y) for x, y in batches])


RECORD = {cases.OpCase: record_op, cases.OptimizerCase: record_optimizer, cases.RunCase: record_run}

# ---- checking --------------------------------------------------------------------------------------------------------


def check(directory):
    listed = json.loads((directory / "golden.json").read_text())["cases"]
    tensors = load_file(directory / "golden.safetensors")
    errors = {}
    for made in together(lambda entry: check_case(entry, tensors), listed):
        errors |= made
    worst = max(errors.values())
    wrong = [f"{n}: off by {e:.1e} of the largest magnitude" for n, e in errors.items() if not e < CHECK_TOLERANCE]
    if wrong:
        sys.exit("the oracle disagrees with " + str(directory) + ":\n" + "\n".join(wrong))
    print(f"{len(listed)} cases agree, largest error {worst:.1e}: {directory}")


def check_case(entry, tensors):
    """The error of everything that a case says, by name."""
    prefix = entry["case"] + "/"
    given = {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}
    made = recompute(entry, given)
    return {prefix + name: max(distance(x, expected) - slack, 0.0) for name, x, expected, slack in made}


def distance(made, expected):
    """The largest error, as a share of the largest expected magnitude."""
    made, expected = np.asarray(made), np.asarray(expected)
    if made.shape != expected.shape:
        return float("inf")
    largest = np.max(np.abs(expected), initial=0.0) or 1.0
    error = float(np.max(np.abs(made - expected), initial=0.0) / largest)
    return float("inf") if np.isnan(error) else error


def recompute(entry, given):
    """Name, what the oracle makes, what is stored and how far apart they may be beyond the tolerance."""
    if entry["op"] == "run":
        return recompute_run(entry, given)
    if "steps" in entry:
        return recompute_optimizer(entry, given)
    return recompute_op(entry, given)


def recompute_op(entry, given):
    inputs = {n: given[f"in/{n}"] for n in entry["inputs"]}
    out, _, gradients = ops.evaluate(
        entry["op"], entry["attrs"], inputs, entry["grads"], cotangent=lambda shape: given["ct"]
    )
    return [("out", out, given["out"], 0.0)] + [(f"grad/{n}", g, given[f"grad/{n}"], 0.0) for n, g in gradients.items()]


def recompute_optimizer(entry, given):
    gradients = [ops.wider(given[f"in/g{i}"]) for i in range(entry["steps"])]
    after = training.steps(entry["op"], entry["attrs"], ops.wider(given["in/p"]), gradients)
    return [(f"p{i}", p, given[f"p{i}"], 0.0) for i, p in enumerate(after)]


def recompute_run(entry, given):
    spec = entry["spec"]
    init = {n.removeprefix("init/"): w for n, w in given.items() if n.startswith("init/")}
    batches = [(given[f"x{i}"], given[f"y{i}"]) for i in range(spec["steps"])]
    losses, final, running = run(spec, init, batches)
    # An adaptive optimizer divides a gradient by its own size, which makes much of the rounding of what was stored.
    others = [run(spec, jittered(init, seed), batches)[1] for seed in range(JITTERED_RUNS)]
    made = [("losses", np.array(losses), np.array(entry["losses"]), 0.0)]
    for n, w in final.items():
        slack = 2 * max(distance(other[n], w) for other in others)
        made.append((f"final/{n}", w, given[f"final/{n}"], slack))
    return made + [(f"state/{n}", s, given[f"state/{n}"], 0.0) for n, s in running.items()]


def jittered(init, seed):
    """Other float64 weights that are stored as the same float32."""
    numbers = np.random.default_rng(seed)
    return {n: w + numbers.uniform(-0.5, 0.5, w.shape) * np.spacing(np.abs(w)) for n, w in init.items()}


if __name__ == "__main__":
    main()
