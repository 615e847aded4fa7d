"""The samples that memfit wrote: folders, each with what a reader has to find in it."""

import json
import sys
from pathlib import Path


def check_all(check):
    """Runs `check(folder, expected)` for every sample of the folder in the first argument; the first that fails ends it."""
    root = Path(sys.argv[1])
    folders = sorted(path.parent for path in root.glob("*/expected.json"))
    if not folders:
        sys.exit(f"no samples in {root}")
    for folder in folders:
        check(folder, json.loads((folder / "expected.json").read_text()))
        print(f"ok {folder.name}")


def equal(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")
