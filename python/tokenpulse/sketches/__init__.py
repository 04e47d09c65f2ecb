"""Reductions that are kept: saved to one JSON file with every sketch in it, loaded again, and merged exactly."""

from tokenpulse.sketches.fields import SCHEMA
from tokenpulse.sketches.file import Saved, check, is_sketches, load, loads, merge, save
from tokenpulse.sketches.merging import merge_reductions

__all__ = ["SCHEMA", "Saved", "check", "is_sketches", "load", "loads", "merge", "merge_reductions", "save"]
