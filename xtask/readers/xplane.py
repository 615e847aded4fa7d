"""XSpaces as the plugin of TensorBoard's Profile tab converts them for its tools.

    xplane.py SAMPLES
"""

import json
import sys
from collections import Counter

from xprof.convert import raw_to_tool_data

from samples import check_all, equal

TOOLS = ["memory_profile", "trace_viewer@", "framework_op_stats"]


def check(folder, expected):
    path = str(folder / expected["xplane"])
    tools = raw_to_tool_data.xspace_to_tool_names([path])
    equal("missing tools", [tool for tool in TOOLS if tool not in tools], [])
    check_memory(converted(path, "memory_profile"), expected)
    check_viewer(converted(path, "trace_viewer@")["traceEvents"], expected)
    check_ops(converted(path, "framework_op_stats")[0], expected)


def converted(path, tool):
    params = {"trace_viewer_options": {}, "hosts": ["memfit"], "use_saved_result": False}
    data, _ = raw_to_tool_data.xspace_to_tool_data([path], tool, params)
    if not data:
        sys.exit(f"{tool}: no data")
    return json.loads(data)


def check_memory(profile, expected):
    equal("memories", profile["memoryIds"], ["arena"])
    memory = profile["memoryProfilePerAllocator"]["arena"]
    summary = memory["profileSummary"]
    equal("the peak", int(summary["peakStats"]["peakBytesInUse"]), expected["peak_bytes"])
    equal("the lifetime's peak", int(summary["peakBytesUsageLifetime"]), expected["peak_bytes"])
    equal("the capacity", int(summary["memoryCapacity"]), expected["arena_bytes"])
    timeline = [int(s["aggregationStats"]["heapAllocatedBytes"]) for s in memory["sampledTimelineSnapshots"]]
    equal("the maximum of the timeline", max(timeline), expected["peak_bytes"])
    equal("memory that nobody has", memory["specialAllocations"], [])
    # What is live at the peak, tensor by tensor.
    by_class = Counter()
    for active in memory["activeAllocations"]:
        tensor = memory["memoryProfileSnapshots"][int(active["snapshotIndex"])]["activityMetadata"]
        by_class[tensor["regionType"]] += int(tensor["allocationBytes"]) * int(active["numOccurrences"])
    equal("what is live at the peak", sum(by_class.values()), expected["peak_bytes"])


def check_viewer(events, expected):
    threads = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    kernels = Counter(threads[e["tid"]] for e in events if e.get("ph") == "X")
    per_thread = expected["slices"] // len(expected["threads"])
    equal("kernels by thread", dict(kernels), {thread: per_thread for thread in expected["threads"]})
    [live] = [e["entries"] for e in events if e.get("ph") == "C" and e["name"] == "live bytes"]
    equal("the maximum of the live bytes", max(value for _, value in live), expected["peak_bytes"])


def check_ops(table, expected):
    """Kernels are ops with a type; whoever asked for memory is listed too, without one."""
    column = {c["id"]: i for i, c in enumerate(table["cols"])}
    rows = [[cell["v"] for cell in row["c"]] for row in table["rows"]]
    kernels = [row[column["occurrences"]] for row in rows if row[column["type"]] not in ("", "IDLE")]
    equal("kernels by op", int(sum(kernels)), expected["slices"])


if __name__ == "__main__":
    check_all(check)
