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
