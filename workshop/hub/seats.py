"""The seats of a workshop: a name and a password each, in a file that only its owner reads.

Run as a program it makes that file: ``python3 seats.py 30 --output seats.csv``.
"""

from __future__ import annotations

import argparse
import csv
import hmac
import os
import re
import secrets
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
LEAST = 8
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is mistaken for another on paper


class SeatsError(ValueError):
    """The seats cannot be used; the message says why and what to do."""


def read_seats(path: Path | str) -> dict[str, str]:
    """Return the password of every seat, in the order of the file.

    Parameters
    ----------
    path
        A CSV file with the columns ``name`` and ``password``; others are passed over.

    Raises
    ------
    SeatsError
        If the file is missing, can be read by everyone, or holds a seat that cannot be used.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                raise SeatsError(f"everyone can read {path}: chmod 600 {path}")
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise SeatsError(f"{path} cannot be read ({error.strerror}); seats.py makes one") from error
    seats: dict[str, str] = {}
    for row in rows:
        name, password = ((row.get(key) or "").strip() for key in ("name", "password"))
        if problem := _problem(name, password, seats):
            raise SeatsError(f"{path}: {problem}")
        seats[name] = password
    if not seats:
        raise SeatsError(f"{path} has no seats; its first line is  name,password")
    return seats


def _problem(name: str, password: str, known: dict[str, str]) -> str | None:
    if not NAME.fullmatch(name):
        return f"{name!r} is no seat's name: a letter, then letters, digits, dashes, 20 at most"
    if name in known:
        return f"{name} stands there twice"
    if len(password) < LEAST:
        return f"the password of {name} has under {LEAST} characters"
    return None


def who(path: Path | str, name: str, password: str) -> str | None:
    """Return the name of the seat if the password is its own, else None.

    Parameters
    ----------
    path
        The seats file, read anew at each login, so that a seat can be added while the hub runs.
    name, password
        What the learner typed.
    """
    right = read_seats(path).get(name)
    same = hmac.compare_digest((right or "").encode(), password.encode())
    return name if right and same else None


def make_seats(count: int, prefix: str = "seat-") -> dict[str, str]:
    """Return numbered seats with random passwords, such as ``{"seat-01": "k7m-qd2-xws"}``.

    Raises
    ------
    SeatsError
        If there would be none, over 999, or their names could not be used.
    """
    if not 1 <= count <= 999:
        raise SeatsError(f"{count} seats cannot be made: ask for 1 to 999")
    names = [f"{prefix}{i:0{max(2, len(str(count)))}}" for i in range(1, count + 1)]
    if not NAME.fullmatch(names[-1]):
        raise SeatsError(f"{prefix!r} begins no seat's name: a small letter, then small letters")
    return {name: _password() for name in names}


def _password() -> str:
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(3)) for _ in range(3))


def write_seats(path: Path | str, seats: dict[str, str]) -> None:
    """Write a seats file that only its owner can read.

    Raises
    ------
    SeatsError
        If the file is there already: passwords that were handed out are not lost.
    """
    try:
        with open(path, "x", encoding="utf-8", newline="", opener=_private) as file:
            csv.writer(file).writerows([("name", "password"), *seats.items()])
    except FileExistsError as error:
        raise SeatsError(f"{path} is there already: choose another --output") from error
    except OSError as error:
        raise SeatsError(f"{path} cannot be written ({error.strerror})") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main(argv: Sequence[str] | None = None) -> int:
    """Make a seats file; 2 if it cannot be made."""
    parser = argparse.ArgumentParser(description="Make the seats of a workshop.")
    parser.add_argument("count", type=int, help="how many; make two more than there are learners")
    parser.add_argument("--output", default="seats.csv", help="the file (default: seats.csv)")
    parser.add_argument("--prefix", default="seat-", help="how names begin (default: seat-)")
    args = parser.parse_args(argv)
    try:
        write_seats(args.output, make_seats(args.count, args.prefix))
    except SeatsError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{args.count} seats are in {args.output}. Print it, and hand out one line a learner.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
