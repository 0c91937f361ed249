"""Where outcomes live and how far apart they are: sets, norms and regularizers."""

from treecal.geometry._convex import (
    LARGEST as LARGEST,
    TOLERANCE,
    ConvexSet,
    Extent,
    frozen as frozen,
    within_reach as within_reach,
)
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
    positive_definite as positive_definite,
)
from treecal.geometry._outcomes import (
    ROUNDING as ROUNDING,
    checked_start as checked_start,
    checked_tolerance as checked_tolerance,
    class_indices as class_indices,
    is_outcome as is_outcome,
    read_forecast as read_forecast,
    read_outcome as read_outcome,
    read_point as read_point,
    rounding as rounding,
    valid_forecasts as valid_forecasts,
    without_negatives as without_negatives,
)
from treecal.geometry._pairing import (
    by_column as by_column,
    check_hot as check_hot,
    check_pairs as check_pairs,
    columns as columns,
    framed_columns as framed_columns,
    is_series as is_series,
    listed as listed,
    paired as paired,
    paired_single as paired_single,
    pairing as pairing,
)
from treecal.geometry._polytope import Polytope, log_vertices as log_vertices, vertices as vertices
from treecal.geometry._regularizers import (
    CustomRegularizer,
    NegativeEntropy,
    PNorm,
    QuadraticForm,
    Regularizer,
    SmoothedEntropy,
    SquaredEuclidean,
)
from treecal.geometry._rows import (
    as_column as as_column,
    read_forecast_rows as read_forecast_rows,
    read_outcome_rows as read_outcome_rows,
    unmixed as unmixed,
)
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
