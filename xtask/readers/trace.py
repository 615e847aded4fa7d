"""Traces by the rules by which Perfetto imports JSON.

    trace.py SAMPLES

Perfetto's trace processor is a program that its Python package downloads when it first runs; here its rules are applied
instead, and what they make of a trace stands in tables of the same names, which the same queries are put to. What the
trace processor would count as an error, drop or put on another track is a failure here.
"""

import json
import re
import sqlite3
import sys

from samples import check_all, equal

TABLES = """
    create table process (pid integer primary key, name text);
    create table thread (tid integer primary key, pid integer, name text);
    create table slice (tid integer, ts integer, dur integer, name text, category text, args text);
    create table counter_track (id integer primary key, pid integer, name text unique);
    create table counter (track_id integer, ts integer, value real);
"""
LARGEST_ID = 2**32 - 1
# Perfetto keeps counters as doubles.
LARGEST_EXACT = 2**53


def check(folder, expected):
    tables = load((folder / "trace.json").read_text())
    one = lambda query: tables.execute(query).fetchone()[0]
    live = "select {} from counter join counter_track on track_id = id where counter_track.name = 'live bytes total'"
    equal("the maximum of the live bytes", one(live.format("max(value)")), expected["peak_bytes"])
    equal("counters of live bytes", one(live.format("count(*)")), expected["launches"] + 1)
    equal("slices", one("select count(*) from slice"), expected["slices"])
    threads = [name for (name,) in tables.execute("select distinct thread.name from slice join thread using (tid) order by tid")]
    equal("threads with slices", threads, expected["threads"])
    equal("processes", one("select count(*) from process where name like 'memfit %'"), 1)
    at_peak = tables.execute(
        """select substr(name, length('live bytes by class ') + 1), value from counter join counter_track on track_id = id
           where name like 'live bytes by class %' and ts in
             (select ts from counter join counter_track on track_id = id where name = 'live bytes total' and value = ?)""",
        [expected["peak_bytes"]],
    ).fetchall()
    for name, value in expected["peak_by_class"]:
        if (name, value) not in at_peak:
            sys.exit(f"no peak with {value} bytes of {name}")


def load(text):
    tables = sqlite3.connect(":memory:")
    tables.executescript(TABLES)
    # What is behind a key that it does not know was once not read at all.
    if not re.match(r'\s*\{\s*"traceEvents"\s*:\s*\[', text):
        sys.exit("the first key is not traceEvents")
    for event in json.loads(text)["traceEvents"]:
        load_event(tables, event)
    check_nesting(tables)
    return tables


def load_event(tables, event):
    pid, tid = whole(event, "pid"), whole(event, "tid")
    kind = event["ph"]
    if kind == "M":
        load_metadata(tables, event, pid, tid)
    elif kind == "X":
        row = (tid, time(event, "ts"), time(event, "dur"), event["name"], event["cat"], json.dumps(event["args"]))
        tables.execute("insert into slice values (?, ?, ?, ?, ?, ?)", row)
    elif kind == "C":
        for key, value in event["args"].items():
            if type(value) not in (int, float) or value > LARGEST_EXACT:
                sys.exit(f"no number that a counter can have: {event}")
            name = f"{event['name']} {key}"
            tables.execute("insert or ignore into counter_track (pid, name) values (?, ?)", (pid, name))
            (track,) = tables.execute("select id from counter_track where name = ?", [name]).fetchone()
            tables.execute("insert into counter values (?, ?, ?)", (track, time(event, "ts"), value))
    else:
        sys.exit(f"an event of no known kind: {event}")


def load_metadata(tables, event, pid, tid):
    if event["name"] == "process_name":
        tables.execute("insert into process values (?, ?)", (pid, event["args"]["name"]))
    elif event["name"] == "thread_name":
        tables.execute("insert into thread values (?, ?, ?)", (tid, pid, event["args"]["name"]))
    elif event["name"] != "thread_sort_index":
        sys.exit(f"metadata of no known kind: {event}")


def whole(event, key):
    if type(event[key]) is not int or not 0 <= event[key] <= LARGEST_ID:
        sys.exit(f"no number of a process or thread: {event}")
    return event[key]


def time(event, key):
    """Nanoseconds: microseconds times 1000, without what is behind the point."""
    if type(event[key]) not in (int, float) or event[key] < 0:
        sys.exit(f"no time: {event}")
    return int(event[key] * 1000)


def check_nesting(tables):
    """Slices of a thread must not overlap unless one is in the other; kernels are never in one another."""
    ends = {}
    for tid, ts, dur in tables.execute("select tid, ts, dur from slice order by tid, ts, dur"):
        if ts < ends.get(tid, 0):
            sys.exit(f"slices of thread {tid} overlap at {ts} ns")
        ends[tid] = ts + dur


if __name__ == "__main__":
    check_all(check)
