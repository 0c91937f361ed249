"""Swap regret: losses, learners, TreeSwap of any learner, classical algorithms, and the reductions."""

from treecal.swap._blum_mansour import BlumMansour, InternalRegretMatching, stationary
from treecal.swap._learners import BeTheLeader, FollowTheLeader, Learner, RegretMatching
from treecal.swap._losses import BregmanLoss, LinearLoss, Loss
from treecal.swap._numeric_losses import CallableLoss, QuadraticLoss
from treecal.swap._reductions import BestResponse, L1BallForecaster, l1_ball_to_simplex, simplex_to_l1_ball
from treecal.swap._regret import ActionRegret, PointRegret, external_regret, swap_regret
from treecal.swap._regularized import FollowTheRegularizedLeader, Hedge, LazyGradientDescent
from treecal.swap._treeswap import TreeSwap, treeswap_bound

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
    "PointRegret",
    "QuadraticLoss",
    "RegretMatching",
    "TreeSwap",
    "external_regret",
    "l1_ball_to_simplex",
    "simplex_to_l1_ball",
    "stationary",
    "swap_regret",
    "treeswap_bound",
]
