"""Swap regret: losses, learners, TreeSwap of any learner, its classical rivals, and the reductions."""

from treecal.swap.blum_mansour import BlumMansour, InternalRegretMatching, stationary
from treecal.swap.learners import BeTheLeader, FollowTheLeader, Learner, RegretMatching
from treecal.swap.losses import BregmanLoss, LinearLoss, Loss, VectorLoss, as_loss, average
from treecal.swap.numeric_losses import CallableLoss, QuadraticLoss
from treecal.swap.reductions import BestResponse, L1BallForecaster, l1_ball_to_simplex, simplex_to_l1_ball
from treecal.swap.regret import ActionRegret, PathRegret, PointRegret, external_regret, swap_regret
from treecal.swap.regularized import FollowTheRegularizedLeader, Hedge, LazyGradientDescent
from treecal.swap.treeswap import TreeSwap, treeswap_bound

__all__ = [
    "ActionRegret",
    "BeTheLeader",
    "BestResponse",
    "BlumMansour",
    "BregmanLoss",
    "CallableLoss",
    "FollowTheLeader",
    "FollowTheRegularizedLeader",
    "Hedge",
    "InternalRegretMatching",
    "L1BallForecaster",
    "LazyGradientDescent",
    "Learner",
    "LinearLoss",
    "Loss",
    "PathRegret",
    "PointRegret",
    "QuadraticLoss",
    "RegretMatching",
    "TreeSwap",
    "VectorLoss",
    "as_loss",
    "average",
    "external_regret",
    "l1_ball_to_simplex",
    "simplex_to_l1_ball",
    "stationary",
    "swap_regret",
    "treeswap_bound",
]
