"""The types of the arguments that the commands of this folder take."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above zero. Some of the options would read 0 or less as "no limit"."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number
