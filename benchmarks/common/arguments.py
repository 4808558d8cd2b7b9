"""Kinds of arguments that the command lines share, for ``type=`` of argparse."""

import argparse

__all__ = ["positive", "share"]


def positive(text: str) -> int:
    """Read an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"Expected an integer of at least 1. Got {text}.")
    return number


def share(text: str) -> float:
    """Read a share from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"Expected a share from 0 to 1. Got {text}.")
    return number
