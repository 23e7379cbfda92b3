"""Memory control groups for the scripts beside this file. Root is needed."""

import os
import pathlib

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def size(text):
    return int(float(text[:-1]) * UNITS[text[-1].upper()]) if text[-1].upper() in UNITS else int(text)


class Group:
    """A memory control group of version 1 or 2; removed at the end."""

    def __init__(self, limit):
        self.v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        base = pathlib.Path("/sys/fs/cgroup" if self.v2 else "/sys/fs/cgroup/memory")
        self.path = base / f"moeflux-bench-{limit}"
        self.path.mkdir(exist_ok=True)
        (self.path / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(size(limit)))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        file = self.path / ("memory.peak" if self.v2 else "memory.max_usage_in_bytes")
        return int(file.read_text()) if file.exists() else 0

    def used(self):
        return int((self.path / ("memory.current" if self.v2 else "memory.usage_in_bytes")).read_text())

    def kills(self):
        """Processes the kernel has killed for memory."""
        text = (self.path / ("memory.events" if self.v2 else "memory.oom_control")).read_text()
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)

    def remove(self):
        self.path.rmdir()
