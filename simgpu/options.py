"""The options that ``python -m simgpu run`` and a notebook's ``%%gpu`` share, and what they print."""

from __future__ import annotations

import argparse

from . import profiles
from .machine import parse_memory
from .messages import _
from .report import Report

CARD = "T4"
CARD_HELP = "the GPU, such as T4, A100 or 'RTX 4090' (default: T4)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options on the machine and its report to a parser, which has the card itself."""
    parser.add_argument(
        "--cards", type=int, help="how many GPUs the machine has (default: one for each process)"
    )
    parser.add_argument("--memory", help="the memory of each, such as 8GB (default: the card's)")
    parser.add_argument("--dry", action="store_true", help="compute nothing: memory and modelled time only")
    parser.add_argument("--no-report", action="store_true", help="print no report at the end")
    parser.add_argument("--compare", metavar="CARDS", help="a step's modelled time on others: A100,H100")


def mistake(args: argparse.Namespace) -> str | None:
    """Return what is wrong with the cards or the memory, as a sentence; None if nothing is."""
    if args.cards is not None and not 1 <= args.cards <= 64:
        return _("--cards {cards}: give a whole number from 1 to 64.").format(cards=args.cards)
    try:
        if args.memory is not None:
            parse_memory(args.memory)
        for card in [args.card, *(args.compare.split(",") if args.compare else ())]:
            profiles.load(card)
    except ValueError as error:
        return str(error)
    return None


def print_report(args: argparse.Namespace, seen: Report) -> None:
    """Print a report, and the comparison of cards, as the options say."""
    if not args.no_report:
        print(f"\n{seen}")
    if args.compare:
        print(f"\n{seen.compare(args.compare.split(','))}")
