"""What the commands of this folder take as arguments."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Some that it is handed to would take 0 and less for no limit."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number
