"""Where outcomes live and how far apart they are: sets, norms and regularizers."""

from treecal.geometry._convex import LARGEST as LARGEST
from treecal.geometry._convex import TOLERANCE, ConvexSet, Extent
from treecal.geometry._convex import frozen as frozen
from treecal.geometry._convex import within_reach as within_reach
from treecal.geometry._norms import (
    Distance,
    Gauge,
    Lp,
    Mahalanobis,
    Norm,
    SquaredNorm,
    as_distance,
    as_norm,
    l1,
    l2,
    linf,
)
from treecal.geometry._norms import positive_definite as positive_definite
from treecal.geometry._outcomes import ROUNDING as ROUNDING
from treecal.geometry._outcomes import checked_start as checked_start
from treecal.geometry._outcomes import checked_tolerance as checked_tolerance
from treecal.geometry._outcomes import class_indices as class_indices
from treecal.geometry._outcomes import is_outcome as is_outcome
from treecal.geometry._outcomes import read_forecast as read_forecast
from treecal.geometry._outcomes import read_outcome as read_outcome
from treecal.geometry._outcomes import read_point as read_point
from treecal.geometry._outcomes import rounding as rounding
from treecal.geometry._outcomes import valid_forecasts as valid_forecasts
from treecal.geometry._outcomes import without_negatives as without_negatives
from treecal.geometry._pairing import by_column as by_column
from treecal.geometry._pairing import check_hot as check_hot
from treecal.geometry._pairing import check_pairs as check_pairs
from treecal.geometry._pairing import columns as columns
from treecal.geometry._pairing import framed_columns as framed_columns
from treecal.geometry._pairing import is_series as is_series
from treecal.geometry._pairing import listed as listed
from treecal.geometry._pairing import paired as paired
from treecal.geometry._pairing import paired_single as paired_single
from treecal.geometry._pairing import pairing as pairing
from treecal.geometry._polytope import Polytope
from treecal.geometry._polytope import log_vertices as log_vertices
from treecal.geometry._polytope import vertices as vertices
from treecal.geometry._regularizers import (
    CustomRegularizer,
    NegativeEntropy,
    PNorm,
    QuadraticForm,
    Regularizer,
    SmoothedEntropy,
    SquaredEuclidean,
)
from treecal.geometry._rows import as_column as as_column
from treecal.geometry._rows import read_forecast_rows as read_forecast_rows
from treecal.geometry._rows import read_outcome_rows as read_outcome_rows
from treecal.geometry._rows import unmixed as unmixed
from treecal.geometry._sets import Ball, Box, Product, Simplex
from treecal.geometry._value import Value as Value

# Imported `as` themselves are names that only other rooms of the package use.
__all__ = [
    "TOLERANCE",
    "Ball",
    "Box",
    "ConvexSet",
    "CustomRegularizer",
    "Distance",
    "Extent",
    "Gauge",
    "Lp",
    "Mahalanobis",
    "NegativeEntropy",
    "Norm",
    "PNorm",
    "Polytope",
    "Product",
    "QuadraticForm",
    "Regularizer",
    "Simplex",
    "SmoothedEntropy",
    "SquaredEuclidean",
    "SquaredNorm",
    "as_distance",
    "as_norm",
    "l1",
    "l2",
    "linf",
]
