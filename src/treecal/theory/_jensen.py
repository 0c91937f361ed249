"""Jensen gaps: how much a regularizer can vary over a set, the one number of (set, norm) that TreeCal's bound needs.

For `R` with `D_R(y|p) >= ‖y − p‖²` on the set, the gap is `J = sup E[R(y)] − R(E[y])` over distributions on it. It is
never more than the range of `R`, and no bound on `D_R` is needed. Each route below gives one `R`. Adding an affine
function to `R` changes nothing; if `D_R >= α‖y − p‖²`, then `R/α` qualifies, with gap `J/α`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treecal._optional import require
from treecal._typing import Array
from treecal.exceptions import ParameterError, TreeCalError, UnsupportedError
from treecal.geometry import (
    ConvexSet,
    Gauge,
    Lp,
    Mahalanobis,
    NegativeEntropy,
    Norm,
    Simplex,
    SquaredEuclidean,
    as_norm,
    l2,
    linf,
    log_vertices,
    vertices,
)


@dataclass(frozen=True, eq=False)
class JensenGap:
    """A bound on the Jensen gap of one regularizer.

    Attributes
    ----------
    value
        The bound.
    route
        Which argument gave it.
    regularizer
        The function `R`, as text.
    rate
        The greatest `D_R` on the set, the paper's ρ, where it is finite and known for this `R` or a variant of it.
    matrix
        For quadratic forms found by optimisation, the form; None elsewhere.
    """

    value: float
    route: str
    regularizer: str
    rate: float | None = None
    matrix: Array | None = None


def euclidean(space: ConvexSet, norm: Norm) -> JensenGap | None:
    """Bound the gap of `R = ‖x‖₂²/α`, or `R = ‖x‖²` for an ellipsoidal norm: squared circumradius.

    The gap of a squared Euclidean norm is a variance: `E‖y − ȳ‖² <= E‖y − c‖²` for every `c`, and the centre of the
    smallest enclosing ball makes that at most its squared radius. In another norm, `‖x‖₂² >= α‖x‖²` on the directions
    of the set. On the simplex those are zero-sum, and the best α is sharper than on all of R^d: `1/c_d` in ℓ1, with
    `c_d = d` for even d and `(d² − 1)/d` for odd (half the coordinates +, half −), and `d/(d − 1)` in ℓ∞ (one
    coordinate against all others).
    """
    if isinstance(norm, Mahalanobis):
        return JensenGap(space.circumradius(norm) ** 2, "ellipsoidal norm", "‖x‖²", rate=space.diameter(norm) ** 2)
    modulus = SquaredEuclidean().modulus(norm, dim=space.dim)
    if isinstance(space, Simplex) and isinstance(norm, Lp) and space.dim > 1:
        d = space.dim
        if norm.p == 1:
            modulus = 1 / d if d % 2 == 0 else d / (d * d - 1)
        elif norm.p == math.inf:
            modulus = d / (d - 1)
    if isinstance(norm, Gauge) and norm.halfspaces is not None:
        modulus = 1 / float(np.square(l2(norm.halfspaces)).max())
    if modulus is None:
        return None
    scale = "" if modulus == 1 else f"{1 / modulus:.4g}·"
    value = space.circumradius(l2) ** 2 / modulus
    rate = space.diameter(l2) ** 2 / modulus
    return JensenGap(value, "Euclidean", f"{scale}‖x‖₂²", rate)


def entropy(space: ConvexSet, norm: Norm) -> JensenGap | None:
    """Bound the gap of `R = (Σ x ln x)/α` on the simplex: `ln d / α`, so `2 ln d` in ℓ1.

    The range of `Σ x ln x` on the simplex is `[−ln d, 0]`, and `KL(y|p) >= α‖y − p‖²` with α = ½ in ℓ1 (Pinsker) and
    `½·4^(1 − 1/p)` in ℓp, zero-sum vectors having `‖x‖_p <= 2^(1/p − 1)‖x‖₁`. The divergence itself is unbounded; the
    rate given is that of its smoothed form.
    """
    modulus = NegativeEntropy().modulus(norm, dim=space.dim)
    if not isinstance(space, Simplex) or modulus is None:
        return None
    value = math.log(space.dim) / modulus
    rate = 2 * math.log(space.dim + 1) / modulus
    return JensenGap(value, "entropy", f"{1 / modulus:.4g}·Σ x ln x", rate)


def polytope(space: ConvexSet, norm: Norm) -> JensenGap | None:
    """Bound the gap of a polytope with n vertices in any norm: `(D²/2)·ln n`.

    Lift outcomes to the n-simplex, `y = V q`. TreeCal commutes with linear maps, so its per-node error on the polytope
    is at most `D/2` times its ℓ1 error above, since `‖V(p − q)‖ <= (D/2)‖p − q‖₁` for p − q zero-sum; the entropy above
    has the gap `2 ln n`, scaled by `(D/2)²`.
    """
    log_count = log_vertices(space)
    if log_count is None:
        return None
    square = space.diameter(norm) ** 2
    rate = square * (log_count + math.log1p(math.exp(-log_count)))
    return JensenGap(square / 2 * log_count, "polytope", f"lifted entropy over {_count(log_count)} vertices", rate)


def quadratic_form(space: ConvexSet, norm: Norm) -> JensenGap | None:
    """Find the best `R = xᵀAx` for a polytope of known vertices, by semidefinite programming (needs cvxpy).

    Minimise the squared radius of the smallest ball in the norm of A that holds the vertices, over A with
    `xᵀAx >= ‖x‖²` on the directions of the polytope. With `b = Ac` and `γ >= bᵀA⁻¹b` (a Schur complement) the radius is
    `max_i v_iᵀAv_i − 2v_iᵀb + γ`: convex in (A, b, γ). With `‖x‖ = max_k |<f_k, x>|` the constraint is `A >= f_k f_kᵀ`
    for all k. The result is a true bound at any tolerance of the solver: A is scaled up until it satisfies its
    constraints, and the radius is computed from the vertices.
    """
    corners = vertices(space)
    functionals = _functionals(norm, space.dim)
    if corners is None or functionals is None:
        return None
    offsets = corners - corners.mean(axis=0)
    _, singular, rows = np.linalg.svd(offsets, full_matrices=False)
    basis = rows[singular > 1e-10 * max(singular.max(), 1e-300)].T  # directions of the polytope
    if basis.shape[1] == 0:
        return JensenGap(0.0, "single point", "0", rate=0.0)
    z = offsets @ basis
    f = functionals @ basis
    scale = float(np.abs(z).max())
    A, centre = _solve_program(z / scale, f)
    tight = max(float(np.einsum("ki,ij,kj->k", f, np.linalg.inv(A), f).max()), 0.0)
    A = A * tight * (1 + 1e-12)  # now f_kᵀA⁻¹f_k <= 1 for all k, which is A >= f_k f_kᵀ
    gaps = z - scale * centre
    value = float(np.einsum("ni,ij,nj->n", gaps, A, gaps).max())
    spread = z[:, None] - z[None]
    rate = float(np.einsum("mni,ij,mnj->mn", spread, A, spread).max())
    return JensenGap(value, "quadratic form", "xᵀAx, A found by a semidefinite program", rate, basis @ A @ basis.T)


ROUTES: tuple[Callable[[ConvexSet, Norm], JensenGap | None], ...] = (euclidean, entropy, polytope)
"""The closed forms. `quadratic_form` is tried as well on request."""


def jensen_gap(space: ConvexSet, norm: Norm | str, *, optimise: bool = False) -> JensenGap:
    """Return the least known bound on the Jensen gap of a set and a norm, with its route.

    Parameters
    ----------
    space, norm
        The set and the norm.
    optimise
        Also solve for the best quadratic form, where the set has vertices; needs cvxpy.

    Examples
    --------
    >>> from treecal.geometry import Ball, Simplex
    >>> jensen_gap(Ball(7), "l2").value
    1.0
    >>> [jensen_gap(Simplex(d), "l1").route for d in (2, 4, 100)]
    ['Euclidean', 'entropy', 'entropy']
    """
    norm = as_norm(norm, space)
    if not isinstance(space, ConvexSet):
        raise ParameterError.expected("space", space, "a ConvexSet", hint="for d classes, Simplex(d).")
    reasons = []
    found = []
    for route in (*ROUTES, quadratic_form) if optimise else ROUTES:
        try:
            gap = route(space, norm)
        except UnsupportedError as error:
            reasons.append(error.message)
            continue
        if gap is not None:
            found.append(gap)
    if not found:
        raise UnsupportedError(
            f"no Jensen gap is known for {space!r} in {norm!r}"
            + (f": {' '.join(reasons)}" if reasons else ": no route covers this norm on this set."),
            hint="for a polytope give its vertices; ℓp, ellipsoidal and halfspace-gauge norms are covered.",
        )
    return min(found, key=lambda gap: gap.value)


def _count(log_count: float) -> str:
    return f"{round(math.exp(log_count)):,}" if log_count < 30 else f"10^{log_count / math.log(10):.0f}"


def _functionals(norm: Norm, dim: int) -> Array | None:
    """Return rows `f_k` with `‖x‖ = max |<f_k, x>|`, when the norm has a short list of them."""
    if norm == linf:
        return np.eye(dim)
    if norm == Lp(1) and dim <= 10:
        return np.array(list(itertools.product([1.0, -1.0], repeat=dim)))[: 2 ** (dim - 1)]  # one of each pair ±f
    if not isinstance(norm, Gauge) or norm.halfspaces is None:
        return None
    rows: Array = norm.halfspaces
    return rows


def _solve_program(z: Array, f: Array) -> tuple[Array, Array]:
    """Return the form A and the centre of its smallest enclosing ball."""
    cp = require("cvxpy", extra="theory", what="the best quadratic form, a semidefinite program,")
    k = z.shape[1]
    A = cp.Variable((k, k), PSD=True)
    b = cp.Variable((k, 1))
    gamma = cp.Variable((1, 1))
    radius = cp.Variable()
    constraints = [cp.bmat([[A, b], [b.T, gamma]]) >> 0]
    constraints += [A - np.outer(row, row) >> 0 for row in f]
    # trace(A vvᵀ) = vᵀAv, all vertices at once
    squares = np.einsum("ni,nj->nij", z, z).reshape(len(z), -1)
    constraints.append(squares @ cp.vec(A, order="C") - 2 * (z @ b)[:, 0] + gamma[0, 0] <= radius)
    problem = cp.Problem(cp.Minimize(radius), constraints)
    problem.solve(solver=cp.CLARABEL)
    if A.value is None:
        raise TreeCalError(f"the semidefinite program for the best quadratic form failed: {problem.status}.")
    form = (A.value + A.value.T) / 2
    return form, np.linalg.solve(form, b.value[:, 0])
