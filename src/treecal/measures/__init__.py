"""Honest measures of forecasts of classes: scores, calibration errors, what they cost, and how sure one can be of them.

Every measure is a function of forecasts `P`, `(n, d)` or `(n,)` for class 1 of two, and of the class of each outcome.
`interval` puts an interval beside any of them, and `chance` what it would be if the forecasts were right.
"""

from treecal.measures._calibration import debiased_ece, ece, mce, resolution
from treecal.measures._cells import MOST_BINS, bin_edges, bin_of, bin_sql
from treecal.measures._decision_curve import DecisionCurve, decision_curve, v_calibration_error
from treecal.measures._few import (
    Estimate,
    Labels,
    LabelWeights,
    estimate,
    few_labels,
    few_mean,
    few_measures,
    label_weights,
    read_labels,
    read_proxy,
)
from treecal.measures._gaps import GapSums, atb, smooth_calibration_error
from treecal.measures._intervals import chance, interval
from treecal.measures._laws import Laws, Members, Moments, Quantiles, pinball_losses, read_laws
from treecal.measures._levels import Chance, Interval, largest_surprise, mean_interval
from treecal.measures._log import read_forecasts
from treecal.measures._losses import Action as Action, Losses, LossTable as LossTable
from treecal.measures._numbers import (
    CrpsParts,
    coverage,
    crps,
    crps_parts,
    interval_score,
    pinball,
    pit,
    sharpness,
    up_to,
)
from treecal.measures._payoff import ActionPayoff, Payoff, best_actions, called, payoff_loss
from treecal.measures._placed import NumberVerdict, Placed
from treecal.measures._reliability import Bins, Luck, bin_class, bin_rows, classwise_ece, mean_gap
from treecal.measures._sample_size import SampleSize, sample_size, smallest_effect
from treecal.measures._scores import accuracy, brier, log_score, rps, skill
from treecal.measures._verdict import NEARLY, SOMEWHAT, TELL, Advice, Verdict, off_among, percent

# Names that are imported and not listed are for the other rooms of the package.
__all__ = [
    "ActionPayoff",
    "Advice",
    "Bins",
    "Chance",
    "CrpsParts",
    "DecisionCurve",
    "Estimate",
    "GapSums",
    "Interval",
    "LabelWeights",
    "Losses",
    "Luck",
    "NumberVerdict",
    "Payoff",
    "Placed",
    "SampleSize",
    "Verdict",
    "accuracy",
    "atb",
    "brier",
    "chance",
    "coverage",
    "crps",
    "crps_parts",
    "debiased_ece",
    "decision_curve",
    "ece",
    "estimate",
    "few_labels",
    "interval",
    "interval_score",
    "label_weights",
    "log_score",
    "mce",
    "mean_interval",
    "payoff_loss",
    "pinball",
    "pit",
    "resolution",
    "rps",
    "sample_size",
    "sharpness",
    "skill",
    "smallest_effect",
    "smooth_calibration_error",
    "v_calibration_error",
]
