"""Streams of outcomes to forecast (random, hard, adversarial and real), and the loop that plays them."""

from treecal.streams._adversaries import Adversary, LedgerAdversary, MeanAdversary, alternation, sign_tree
from treecal.streams._play import are_classes, checkpoints, next_checkpoint, play
from treecal.streams._real import (
    ClassStream,
    ModelStream,
    atlantic_storms,
    new_york_flights,
    new_york_flights_model,
    seattle_weather,
    seattle_wet_or_dry,
)
from treecal.streams._stochastic import drift, iid, random_walk, regime_switches

__all__ = [
    "Adversary",
    "ClassStream",
    "LedgerAdversary",
    "MeanAdversary",
    "ModelStream",
    "alternation",
    "atlantic_storms",
    "checkpoints",
    "drift",
    "iid",
    "new_york_flights",
    "new_york_flights_model",
    "play",
    "random_walk",
    "regime_switches",
    "seattle_weather",
    "seattle_wet_or_dry",
    "sign_tree",
]
