"""What each tool would have said of the same requests: named sets of choices, on exact values.

A profile is a tool's arithmetic, by its own keys and in its own units, so that its figures can be held against the
tool's own files. It takes the `Records` of any reader. Values are exact and in memory: `LIMIT` of them at most.
"""

from tokenpulse.profiles.beside import side_by_side
from tokenpulse.profiles.choices import Choices
from tokenpulse.profiles.registry import LIMIT, PROFILES, Profile, profile

__all__ = ["LIMIT", "PROFILES", "Choices", "Profile", "profile", "side_by_side"]
