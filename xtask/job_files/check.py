"""Files that start replicas: an MPIJob against its schema and by what it says twice, and the scripts by what they start.

    check.py FOLDER     where mpijob.yaml and slurm.sh lie
"""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jsonschema
import yaml

HERE = pathlib.Path(__file__).parent


def problems(job, schema):
    """All that is wrong with an MPIJob."""
    found = [f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(job)]
    return found or contradictions(job["spec"])


def contradictions(spec):
    """What one place says otherwise than another."""
    found = []
    replicas = spec["mpiReplicaSpecs"]
    pods = {name: replica["template"]["spec"] for name, replica in replicas.items()}
    for name, pod in pods.items():
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        mounts = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
        if volumes != mounts:
            found.append(f"{name}: the volumes are {sorted(volumes)} and those that are mounted {sorted(mounts)}")
    hosts = replicas.get("Worker", {"replicas": 0}).get("replicas", 1) + spec.get("runLauncherAsWorker", False)
    started = re.search(r"mpirun .*?-n (\d+)", launcher_script(spec))
    if started is None or int(started[1]) != hosts * spec.get("slotsPerWorker", 1):
        found.append(f"{hosts} hosts of {spec.get('slotsPerWorker', 1)} are there for mpirun -n {started and started[1]}")
    if len({container["image"] for pod in pods.values() for container in pod["containers"]}) != 1:
        found.append("the pods have different images, and all have to be of one version")
    if "Worker" in pods and (lacking := paths(pods["Worker"]) - paths(pods["Launcher"])):
        found.append(f"only the workers have {sorted(lacking)}, and the first replica is in the launcher")
    return found


def paths(pod):
    return {mount["mountPath"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}


def launcher_script(spec):
    return spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"][0]


def slips(job):
    """The job with one thing wrong, each."""
    def change(path, value):
        changed = copy.deepcopy(job)
        place = changed
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return changed

    launcher = ("spec", "mpiReplicaSpecs", "Launcher")
    worker = ("spec", "mpiReplicaSpecs", "Worker")
    yield change(("apiVersion",), "kubeflow.org/v1")
    yield change(("spec", "runLauncherAsWorkers"), True)
    yield change(("spec", "runLauncherAsWorker"), False)
    yield change(("spec", "slotsPerWorker"), 2)
    yield change(worker + ("replicas",), 4)
    yield change(worker + ("template", "spec", "containers"), None)
    yield change(worker + ("template", "spec", "containers", 0, "image"), "memfit-mpi:old")
    yield change(worker + ("template", "spec", "containers", 0, "resources", "limits", "memory"), "4GiB")
    yield change(worker + ("template", "spec", "volumes", 0, "name"), "date")
    yield change(launcher + ("template", "spec", "restartPolicy"), "OnFailure")


def started(script, folder, ends_with=0):
    """The lines that a script gives to programs which only say what they are given; the first of them ends with a code."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    for program in ["mpirun", "srun", "scontrol"]:
        code = 0 if program == "scontrol" else ends_with
        (bin / program).write_text(f'#!/bin/sh\necho "{program} $*"\nexit {code}\n')
        (bin / program).chmod(0o755)
    variables = {"PATH": f"{bin}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "8", "SLURM_JOB_ID": "7"}
    done = subprocess.run(script, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


def check_launcher(script):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = ["/bin/sh", "-euc", script.replace("/runs", f"{folder}/runs")]
        expect(started(command, folder), [r"mpirun .* memfit train .*/runs/photos.toml --out .*/runs/photos"])
        (folder / "runs/photos").mkdir(parents=True)
        (folder / "runs/photos/last.json").touch()
        expect(started(command, folder), [r"mpirun .* memfit train --resume .*/runs/photos"])


def check_slurm(path):
    options = re.findall(r"^#SBATCH (--[a-z-]+)", path.read_text(), re.MULTILINE)
    known = {"--job-name", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--mem", "--time", "--signal", "--requeue"}
    assert options and set(options) <= known, f"{set(options) - known} are no options of sbatch that are known here"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = ["/bin/bash", str(path.resolve())]
        begun = r"srun --mpi=pmix memfit train --threads 8 photos.toml --out runs/photos"
        expect(started(script, folder), [begun])
        expect(started(script, folder, ends_with=130), [begun, "scontrol requeue 7"])
        expect(started(script, folder, ends_with=4), [begun])
        (folder / "runs/photos").mkdir(parents=True)
        (folder / "runs/photos/last.json").touch()
        expect(started(script, folder), ["srun --mpi=pmix memfit train --threads 8 --resume runs/photos"])


def expect(lines, patterns):
    same = len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))
    assert same, f"it starts {lines} and not {patterns}"


def main(folder):
    job = yaml.safe_load((folder / "mpijob.yaml").read_text())
    schema = json.loads((HERE / "mpijob.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    found = problems(job, schema)
    assert not found, "\n".join(found)
    missed = [number for number, slip in enumerate(slips(job)) if not problems(slip, schema)]
    assert not missed, f"slips that nothing is said of: {missed}"
    check_launcher(launcher_script(job["spec"]))
    check_slurm(folder / "slurm.sh")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
