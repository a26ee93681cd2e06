"""What memory is free is what the system says, or less where a group holds the process in bounds."""

from pathlib import Path

import pytest

from regard.kernels.memory import free_memory

MEBI = 1 << 20


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")


@pytest.mark.parametrize(("groups", "free"), [
    ({}, 64),
    ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
      "sys/fs/cgroup/a/memory.max": f"{32 * MEBI}\n", "sys/fs/cgroup/a/memory.current": f"{2 * MEBI}\n"}, 30),
    ({"proc/self/cgroup": "3:cpu:/\n2:memory:/job\n",
      "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{9 * MEBI}\n",
      "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{MEBI}\n"}, 8),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{9 * MEBI}\n",
      "sys/fs/cgroup/memory.current": f"{8 * MEBI}\n",
      "sys/fs/cgroup/memory.stat": f"anon 7\ninactive_file {2 * MEBI}\nactive_file {MEBI}\n"}, 4),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{MEBI}\n",
      "sys/fs/cgroup/memory.current": f"{2 * MEBI}\n"}, 0)])
def test_the_least_of_what_is_told_counts(tmp_path: Path, groups: dict[str, str], free: int) -> None:
    write(tmp_path, {"proc/meminfo": "MemTotal: 99999 kB\nMemAvailable: 65536 kB\n", **groups})
    assert free_memory(tmp_path) == free * MEBI


def test_where_nobody_tells_there_is_a_guess(tmp_path: Path) -> None:
    assert free_memory(tmp_path) > 0
    assert free_memory() > 0
