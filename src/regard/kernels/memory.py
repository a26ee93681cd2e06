"""The free memory, for fast paths that need more of it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["free_memory"]

UNKNOWN = 4 << 30  # bytes, if the system does not say
LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a control group, by which a container is held in bounds, of the second version and the first."""


def free_memory(root: Path = Path("/")) -> int:
    """Bytes: the least that the system, or a group that this process is in, still has."""
    found = []
    with suppress(OSError, ValueError):
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    for group in _groups(root):
        for most, used in LIMITS:
            with suppress(OSError, ValueError):  # not there; or "max", where there is no limit
                limit, taken = (int((group / name).read_text(encoding="ascii")) for name in (most, used))
                found.append(min(limit, max(0, limit - taken + _pages_of_files(group))))
    return min(found, default=UNKNOWN)


def _pages_of_files(group: Path) -> int:
    """Bytes of a group that only keep files at hand: they are given up where memory is wanted."""
    sizes = dict[str, int]()
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            name, size = line.split()
            sizes[name] = int(size)
    return sum(sizes.get(f"total_{name}", sizes.get(name, 0)) for name in ("inactive_file", "active_file"))


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in, from the innermost on."""
    lines = list[str]()
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        place = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        inner = place / path.strip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder == place or place in folder.parents)
