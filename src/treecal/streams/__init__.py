"""Streams of outcomes to forecast: by chance, made to be hard, chosen by an adversary, and real."""

from treecal.streams.adversaries import Adversary, LedgerAdversary, MeanAdversary, play
from treecal.streams.hard import alternation, sign_tree
from treecal.streams.real import ClassStream, seattle_weather
from treecal.streams.stochastic import drift, iid, random_walk, regime_switches

__all__ = [
    "Adversary",
    "ClassStream",
    "LedgerAdversary",
    "MeanAdversary",
    "alternation",
    "drift",
    "iid",
    "play",
    "random_walk",
    "regime_switches",
    "seattle_weather",
    "sign_tree",
]
