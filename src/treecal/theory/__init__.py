"""Theory you can run: Jensen gaps, certificates, the planner and lower bounds."""

from treecal.theory._certificates import (
    Certificate,
    TreeCertificate,
    block_regret,
    certificate,
    sample_certificate,
    sampling_cost,
)
from treecal.theory._certificates import hedge_rate as hedge_rate
from treecal.theory._harmonic import TABULATED as TABULATED
from treecal.theory._harmonic import blocks_total as blocks_total
from treecal.theory._harmonic import unit_total as unit_total
from treecal.theory._jensen import JensenGap, jensen_gap
from treecal.theory._jensen import euclidean as euclidean
from treecal.theory._jensen import quadratic_form as quadratic_form
from treecal.theory._plan import Plan, log_rounds_ball, log_rounds_simplex, plan
from treecal.theory._spectral import Replay, SpectralCertificate, spectral_certificate

__all__ = [
    "Certificate",
    "JensenGap",
    "Plan",
    "Replay",
    "SpectralCertificate",
    "TreeCertificate",
    "block_regret",
    "certificate",
    "jensen_gap",
    "log_rounds_ball",
    "log_rounds_simplex",
    "plan",
    "sample_certificate",
    "sampling_cost",
    "spectral_certificate",
]
