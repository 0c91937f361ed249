"""Theory you can run: Jensen gaps, certificates, the planner and lower bounds."""

from treecal.theory.certificates import Certificate, certificate, sample_certificate
from treecal.theory.jensen import JensenGap, jensen_gap
from treecal.theory.plan import Plan, plan
from treecal.theory.recommend import Choice, Recommendation, recommend
from treecal.theory.spectral import Replay, SpectralCertificate, spectral_certificate

__all__ = [
    "Certificate",
    "Choice",
    "JensenGap",
    "Plan",
    "Recommendation",
    "Replay",
    "SpectralCertificate",
    "certificate",
    "jensen_gap",
    "plan",
    "recommend",
    "sample_certificate",
    "spectral_certificate",
]
