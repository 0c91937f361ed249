"""Where outcomes live and how far apart they are: sets, norms and regularizers."""

from treecal.geometry.convex import TOLERANCE, ConvexSet, Extent
from treecal.geometry.norms import (
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
from treecal.geometry.polytope import Polytope
from treecal.geometry.regularizers import (
    CustomRegularizer,
    NegativeEntropy,
    PNorm,
    QuadraticForm,
    Regularizer,
    SmoothedEntropy,
    SquaredEuclidean,
)
from treecal.geometry.sets import Ball, Box, Product, Simplex

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
