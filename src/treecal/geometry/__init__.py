"""Where outcomes live and how far apart they are: sets, norms and regularizers."""

from treecal.geometry._cdf import Cdf, Distribution
from treecal.geometry._convex import LARGEST, ROUNDING, TOLERANCE, ConvexSet, Extent, frozen, within_reach
from treecal.geometry._distributions import (
    FAMILIES,
    from_members,
    from_moments,
    from_quantiles,
    quantile_level,
    quantile_levels,
    read_columns,
    read_distribution,
    read_distributions,
    read_numbers,
)
from treecal.geometry._norms import (
    Crps,
    Distance,
    Gauge,
    Lp,
    Mahalanobis,
    Norm,
    Rps,
    SquaredNorm,
    as_distance,
    as_norm,
    l1,
    l2,
    linf,
    positive_definite,
)
from treecal.geometry._outcomes import (
    SAMPLE,
    checked_start,
    checked_tolerance,
    class_indices,
    own_point,
    read_forecast,
    read_outcome,
    read_point,
    renormalised,
    rounding,
    valid_forecasts,
    without_negatives,
    written_to,
)
from treecal.geometry._pairing import (
    by_column,
    check_hot,
    check_pairs,
    columns,
    framed_columns,
    is_series,
    listed,
    order_of,
    paired,
    paired_single,
    pairing,
)
from treecal.geometry._polytope import Polytope, log_vertices, vertices
from treecal.geometry._regularizers import (
    CustomRegularizer,
    NegativeEntropy,
    PNorm,
    QuadraticForm,
    Regularizer,
    SmoothedEntropy,
    SquaredEuclidean,
)
from treecal.geometry._rows import as_column, read_forecast_rows, read_outcome_rows, unmixed
from treecal.geometry._sets import Ball, Box, Product, Simplex
from treecal.geometry._value import Value

# Names that are imported and not listed are for the other rooms of the package.
__all__ = [
    "TOLERANCE",
    "Ball",
    "Box",
    "Cdf",
    "ConvexSet",
    "Crps",
    "CustomRegularizer",
    "Distance",
    "Distribution",
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
    "Rps",
    "Simplex",
    "SmoothedEntropy",
    "SquaredEuclidean",
    "SquaredNorm",
    "as_distance",
    "as_norm",
    "l1",
    "l2",
    "linf",
    "quantile_level",
    "read_distribution",
    "read_distributions",
]
