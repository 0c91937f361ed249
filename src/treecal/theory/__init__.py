"""Theory you can run: Jensen gaps, certificates, the planner and lower bounds."""

from treecal.theory._certificates import (
    Certificate,
    TreeCertificate,
    block_regret,
    certificate,
    hedge_rate,
    sample_certificate,
    sampling_cost,
)
from treecal.theory._harmonic import TABULATED, blocks_total, unit_total
from treecal.theory._jensen import JensenGap, euclidean, jensen_gap, quadratic_form
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
