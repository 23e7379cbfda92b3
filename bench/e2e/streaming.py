#!/usr/bin/env python3
"""Decode speed of a model that does not fit, against what disk and processor allow.

  bench/e2e/streaming.py MODEL [--limits 6G,12G] [--rounds 3] [--tokens 48] [--moeflux PATH]

Runs, in turn and several times: `moeflux bench` with everything resident, the same inside a memory
control group of each limit (root is needed for that), and fio with the same record size and depth.
Prints every term. See bench/PROTOCOL.md.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

from group import Group, size


def bench(arguments, model, group=None, extra=()):
    command = [arguments.moeflux, "bench", model, "-p", "0", "-n", str(arguments.tokens), "-r", "1",
               "--warm-up", str(arguments.warm_up), "-o", "json", "-q", *extra]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                               preexec_fn=group.enter if group else None)
    output = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    row = json.loads(output)[0]
    row["peak"] = group.peak() if group else 0
    return row


def fio(model, record, depth):
    """Bytes per second of fio at this record size and depth, or 0 without fio."""
    if not shutil.which("fio"):
        return 0
    files = sorted(str(p) for p in pathlib.Path(model).glob("experts-*.bin"))
    if not files:
        return 0
    command = ["fio", "--name=r", "--readonly", "--rw=randread", "--direct=1", "--ioengine=io_uring",
               f"--bs={record}", f"--iodepth={depth}", "--runtime=2", "--time_based",
               "--filename=" + ":".join(files), "--output-format=json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        return 0
    return json.loads(run.stdout[run.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"]


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def report(arguments, resident, limited, fios):
    compute = median(resident, "seconds_per_token")
    print(f"\nresident     {1e3 * compute:7.1f} ms/token, {1 / compute:.2f} tok/s "
          f"({100 * median(resident, 'memory_share'):.0f} % of the memory bound)")
    for limit, rows in limited.items():
        seconds = median(rows, "seconds_per_token")
        disk = median(rows, "disk_bound_seconds")
        # Ratios are taken within a round, then their median: rounds differ more than that.
        ratios = [r["seconds_per_token"] / max(r["disk_bound_seconds"], c["seconds_per_token"])
                  for r, c in zip(rows, resident)]
        fio_ratios = [r["seconds_per_token"] /
                      max(r["bytes_missed_per_token"] / f, c["seconds_per_token"])
                      for r, c, f in zip(rows, resident, fios) if f]
        print(f"{limit:<12} {1e3 * seconds:7.1f} ms/token, {1 / seconds:.2f} tok/s; "
              f"disk bound {1e3 * disk:.1f} ms "
              f"({median(rows, 'bytes_missed_per_token') / 1e6:.0f} MB missed at "
              f"{median(rows, 'disk_bytes_per_second') / 1e9:.2f} GB/s), hit rate "
              f"{100 * median(rows, 'hit_rate'):.1f} %, waited "
              f"{1e3 * median(rows, 'wait_seconds_per_token'):.1f} ms, drive busy "
              f"{1e3 * median(rows, 'drive_busy_seconds_per_token'):.1f} ms; "
              f"{statistics.median(ratios):.2f} x max(disk, resident)"
              + (f", {statistics.median(fio_ratios):.2f} x with fio's speed" if fio_ratios else "") +
              f"; peak "
              f"{max(r['peak'] for r in rows) / 2**30:.2f} GiB of {limit}; {rows[-1]['lookahead']}")
    own = [r["disk_bytes_per_second"] for rows in limited.values() for r in rows]
    if any(fios):
        print(f"reader       {statistics.median(own) / 1e9:.2f} GB/s, fio "
              f"{statistics.median(fios) / 1e9:.2f} GB/s: "
              f"{100 * statistics.median(own) / statistics.median(fios):.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--limits", default="6G,12G")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--warm-up", type=int, default=64)
    parser.add_argument("--resident-ram", default="20G")
    parser.add_argument("--moeflux", default="build/release/moeflux")
    arguments = parser.parse_args()

    limits = arguments.limits.split(",")
    resident, limited, fios = [], {limit: [] for limit in limits}, []
    for number in range(arguments.rounds):
        row = bench(arguments, arguments.model, extra=["--ram", arguments.resident_ram])
        resident.append(row)
        for limit in limits:
            group = Group(limit)
            limited[limit].append(bench(arguments, arguments.model, group))
            group.remove()
        record = round(limited[limits[0]][-1]["bytes_per_record"])
        fios.append(fio(arguments.model, record, limited[limits[0]][-1]["reads_at_once"]))
        for row in [resident[-1]] + [rows[-1] for rows in limited.values()]:
            row["seconds_per_token"] = row["seconds"][0] / row["n_tokens"]
            row["memory_share"] = row["memory_bound_seconds"] / row["seconds_per_token"]
        print(f"round {number + 1}: " + ", ".join(
            f"{name} {1e3 * row['seconds_per_token']:.0f} ms" for name, row in
            [("resident", resident[-1])] + [(limit, rows[-1]) for limit, rows in limited.items()]),
            flush=True)
    report(arguments, resident, limited, fios)


if __name__ == "__main__":
    main()
