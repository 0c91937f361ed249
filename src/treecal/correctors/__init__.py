"""Correctors: `predict(b)` corrects another model's forecast of the round, `update(y)` learns the outcome."""

import inspect

from treecal.correctors import _forgetting
from treecal.correctors._auto import AutoCorrector
from treecal.correctors._base import REGISTRY, Corrector, Scored
from treecal.correctors._batch import Batch, Group, one_each
from treecal.correctors._by_group import ByGroup
from treecal.correctors._chain import Chain
from treecal.correctors._forgetting import calibeating_bound, tracking_bound
from treecal.correctors._frames import LocationSpread, Together
from treecal.correctors._gated import Gated, Switch
from treecal.correctors._groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.correctors._guarded import GuardedCorrector
from treecal.correctors._isotonic import IsotonicCalibration
from treecal.correctors._location_scale import LocationScale
from treecal.correctors._mixture import History, Mixture
from treecal.correctors._multicalibrator import Multicalibrator, multicalibration_bound
from treecal.correctors._names import read_name, saved_names
from treecal.correctors._newton_kernels import FIRST, Newton
from treecal.correctors._rationed import Rationed
from treecal.correctors._recalibrator import PitMap, Recalibrator
from treecal.correctors._scaling import Scaling
from treecal.correctors._scaling_kinds import (
    BetaCalibration,
    MatrixScaling,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
)
from treecal.correctors._scores import Correction, Round, Scores, Sums, Tallies
from treecal.correctors._stream_scores import (
    BankScores,
    Scorecards,
    StreamScores,
)
from treecal.correctors._valid import (
    announce_many_valid,
    announce_valid,
    check_weight,
    learn_many_valid,
    learn_valid,
    learns_at_once,
    merged_report,
    valid_forecast,
    valid_forecasts,
    valid_groups,
)

forgetting = _forgetting  # for the other rooms

__all__ = [
    "REGISTRY",
    "AutoCorrector",
    "BetaCalibration",
    "ByGroup",
    "ByKey",
    "Cells",
    "Centroids",
    "Chain",
    "Correction",
    "Corrector",
    "Gated",
    "Groups",
    "GuardedCorrector",
    "History",
    "IsotonicCalibration",
    "LocationScale",
    "LocationSpread",
    "MatrixScaling",
    "Mixture",
    "Multicalibrator",
    "PitMap",
    "PlattScaling",
    "Rationed",
    "Recalibrator",
    "Scaling",
    "Scores",
    "Switch",
    "TemperatureScaling",
    "Together",
    "TopClass",
    "VectorScaling",
    "all_correctors",
    "calibeating_bound",
    "method_of",
    "multicalibration_bound",
    "tracking_bound",
]


def all_correctors() -> list[type[Corrector]]:
    """Return every class that corrects one model, for the command line, the server, reports and the tests.

    They are those of this package, and others that have a name.

    Examples
    --------
    >>> [kind.__name__ for kind in all_correctors()]
    ['AutoCorrector', 'BetaCalibration', 'ByGroup', 'Chain', ...]
    """
    things = (*(globals()[name] for name in __all__), *REGISTRY.values())
    kinds = [t for t in things if isinstance(t, type) and issubclass(t, Corrector) and not inspect.isabstract(t)]
    return list(dict.fromkeys(kind for kind in kinds if not kind._several))


def method_of(kind: str) -> str:
    """Return the name in `treecal recalibrate --method` of a class of this package, given by its name.

    Examples
    --------
    >>> method_of("VectorScaling")
    'vector'
    """
    found: type[Corrector] = globals()[kind]
    return next(iter(found.methods()))
