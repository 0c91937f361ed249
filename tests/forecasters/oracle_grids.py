"""BinaryGrid as its description reads, with loops."""

from __future__ import annotations


class LiteralBinaryGrid:
    """Announces a list of (probability of the second class, weight)."""

    def __init__(self, bins: int) -> None:
        self.bins = bins
        self.V = [0.0] * (bins + 1)

    def play(self) -> dict[int, float]:
        N, V = self.bins, self.V
        chosen: list[dict[int, float]] = [{i: 1.0} for i in range(N + 1) if V[i] == 0]
        if not chosen:
            for i in range(N):
                if V[i] > 0 > V[i + 1]:
                    total = V[i] - V[i + 1]
                    chosen.append({i: -V[i + 1] / total, i + 1: V[i] / total})
        assert chosen

        def off_centre(option: dict[int, float]) -> float:
            return abs(sum(option) / len(option) - N / 2)

        nearest = min(map(off_centre, chosen))
        kept = [option for option in chosen if off_centre(option) == nearest]
        mixed: dict[int, float] = {}
        for option in kept:
            for i, weight in option.items():
                mixed[i] = mixed.get(i, 0.0) + weight / len(kept)
        return mixed

    def learn(self, y: float) -> None:
        for i, weight in self.play().items():
            self.V[i] += weight * (y - i / self.bins)
