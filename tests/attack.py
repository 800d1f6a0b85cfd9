"""The table of the attack: ``python tests/attack.py`` runs each test that tells how often it tried something.

The attack of November 2026 and what it found stand in `test_hostile.py`; rows that begin with ``own`` are not of it.
Further words go to pytest, such as ``-m "not everywhere"``, which leaves out what takes minutes.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

PREFIX = "attack: "


class Table:
    """Picks the tests, and adds up what they tell."""

    def __init__(self):
        self.times, self.failed = defaultdict(int), []

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if "attacked" in item.fixturenames]

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            for name, times in report.user_properties:
                if name.startswith(PREFIX):
                    self.times[name.removeprefix(PREFIX)] += times
        if report.failed:
            self.failed.append(report.nodeid)


def main():
    """Run the tests and print the table; 0 where all held."""
    here, table = Path(__file__).parent, Table()
    tests = [p for p in here.glob("test_*.py") if "attacked" in p.read_text(encoding="utf-8")]
    status = pytest.main(["-q", "-n", "0", *sys.argv[1:], *map(str, sorted(tests))], [table])
    print("\n| tried | times, and held each time |\n|---|---|")
    for name, times in table.times.items():
        print(f"| {name} | {times:,} |")
    for test in table.failed:
        print(f"| {test} | did not hold |")
    return status


if __name__ == "__main__":
    sys.exit(main())
