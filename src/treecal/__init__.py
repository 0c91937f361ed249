"""Audit forecasts, recalibrate a model as it runs, and be alarmed when it drifts, with guarantees on every sequence.

Examples
--------
>>> import treecal as tc
>>> space = tc.Simplex(3)
>>> f, ledger = tc.Guarded(space), tc.Ledger(space)
>>> for t in range(100):
...     x, y = f.predict(), [[1, 0, 0], [0, 1, 0], [0, 0, 1]][t % 3]
...     f.update(y)
...     ledger.record(x, y)
>>> round(ledger.error("l1"), 3)
0.087
"""

from treecal.auditing import audit, sample_labels
from treecal.correctors import (
    AutoCorrector,
    BetaCalibration,
    ByGroup,
    Chain,
    Corrector,
    Gated,
    GuardedCorrector,
    IsotonicCalibration,
    LocationScale,
    Mixture,
    Multicalibrator,
    PitMap,
    PlattScaling,
    Rationed,
    Recalibrator,
    TemperatureScaling,
    VectorScaling,
)
from treecal.engine import Bank, Labels, replay
from treecal.exceptions import TreeCalError
from treecal.forecast import Forecast
from treecal.forecasters import (
    AdaptiveTreeCal,
    BinaryGrid,
    Codebook,
    Decisions,
    Forecaster,
    Guarded,
    Harmonic,
    RunningMean,
    Sampled,
    SampleTreeCal,
    SimplexGrid,
    Tracker,
    TreeCal,
    recommend,
)
from treecal.geometry import (
    Ball,
    Box,
    Cdf,
    ConvexSet,
    Lp,
    Mahalanobis,
    NegativeEntropy,
    Polytope,
    Product,
    Simplex,
    SmoothedEntropy,
    SquaredEuclidean,
    l1,
    l2,
    linf,
)
from treecal.late import Late
from treecal.ledger import Ledger
from treecal.measures import Losses, sample_size
from treecal.monitor import Monitor
from treecal.state import load, save
from treecal.theory import certificate, plan

__version__ = "0.2.0"

__all__ = [
    "AdaptiveTreeCal",
    "AutoCorrector",
    "Ball",
    "Bank",
    "BetaCalibration",
    "BinaryGrid",
    "Box",
    "ByGroup",
    "Cdf",
    "Chain",
    "Codebook",
    "ConvexSet",
    "Corrector",
    "Decisions",
    "Forecast",
    "Forecaster",
    "Gated",
    "Guarded",
    "GuardedCorrector",
    "Harmonic",
    "IsotonicCalibration",
    "Labels",
    "Late",
    "Ledger",
    "LocationScale",
    "Losses",
    "Lp",
    "Mahalanobis",
    "Mixture",
    "Monitor",
    "Multicalibrator",
    "NegativeEntropy",
    "PitMap",
    "PlattScaling",
    "Polytope",
    "Product",
    "Rationed",
    "Recalibrator",
    "RunningMean",
    "SampleTreeCal",
    "Sampled",
    "Simplex",
    "SimplexGrid",
    "SmoothedEntropy",
    "SquaredEuclidean",
    "TemperatureScaling",
    "Tracker",
    "TreeCal",
    "TreeCalError",
    "VectorScaling",
    "audit",
    "certificate",
    "l1",
    "l2",
    "linf",
    "load",
    "plan",
    "recommend",
    "replay",
    "sample_labels",
    "sample_size",
    "save",
]
