"""Correctors: `predict(b)` corrects another model's forecast of the round, `update(y)` learns the outcome."""

from treecal.correctors._base import Chain, Corrector
from treecal.correctors._groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.correctors._recalibrator import Recalibrator
from treecal.correctors._report import Correction, Scores
from treecal.correctors._scaling import PlattScaling, Scaling, TemperatureScaling, VectorScaling

__all__ = [
    "ByKey",
    "Cells",
    "Centroids",
    "Chain",
    "Correction",
    "Corrector",
    "Groups",
    "PlattScaling",
    "Recalibrator",
    "Scaling",
    "Scores",
    "TemperatureScaling",
    "TopClass",
    "VectorScaling",
]
