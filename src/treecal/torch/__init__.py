"""treecal on the device that a model runs on: calibration error of its logits, recalibration, a monitor.

Everything is torch's own operations: it works on the CPU as well, with float32, bfloat16, float16 and float64 logits,
and under `torch.compile`.
"""

from treecal._optional import require

require("torch", extra="torch", what="treecal.torch")

from treecal.torch._metric import CalibrationError
from treecal.torch._monitor import Monitor
from treecal.torch._recalibrate import Recalibrate

__all__ = ["CalibrationError", "Monitor", "Recalibrate"]
