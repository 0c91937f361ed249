"""Where outcomes live and how far apart they are: sets, norms and regularizers."""

from treecal.geometry._convex import TOLERANCE, ConvexSet, Extent
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
from treecal.geometry._outcomes import (
    ROUNDING,
    checked_tolerance,
    read_forecast,
    valid_forecasts,
    without_negatives,
)
from treecal.geometry._polytope import Polytope
from treecal.geometry._regularizers import (
    CustomRegularizer,
    NegativeEntropy,
    PNorm,
    QuadraticForm,
    Regularizer,
    SmoothedEntropy,
    SquaredEuclidean,
)
from treecal.geometry._sets import Ball, Box, Product, Simplex
from treecal.geometry._tables import by_column, classes_of, columns, is_series

__all__ = [
    "ROUNDING",
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
    "by_column",
    "checked_tolerance",
    "classes_of",
    "columns",
    "is_series",
    "l1",
    "l2",
    "linf",
    "read_forecast",
    "valid_forecasts",
    "without_negatives",
]
