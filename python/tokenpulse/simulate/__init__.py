"""A serving engine in miniature: continuous batching on a machine that follows the roofline, deterministic by seed."""

from tokenpulse.simulate.hardware import GPU, Machine, Model, known_gpus, known_machine, known_models
from tokenpulse.simulate.request import Request, Stage
from tokenpulse.simulate.simulation import Simulation, build, run
from tokenpulse.simulate.tally import Result

__all__ = [
    "GPU",
    "Machine",
    "Model",
    "Request",
    "Result",
    "Simulation",
    "Stage",
    "build",
    "known_gpus",
    "known_machine",
    "known_models",
    "run",
]
