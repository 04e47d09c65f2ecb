"""From paths and tables of any format to one reduction, and to what the inputs tell beside it."""

from tokenpulse.intake.cut import Cut
from tokenpulse.intake.inputs import Intake, Settings

__all__ = ["Cut", "Intake", "Settings"]
