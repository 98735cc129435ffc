"""Solvers of one quadratic program: kernel mean matching of the rows of a mini-batch.

min ½wᵀKw − κᵀw over 0 ≤ w ≤ B and √n ≤ Σw ≤ 2n − √n, with K = exp(−γ‖z − z'‖²) of the n training rows plus λ on its
diagonal, and κ the same kernel between training and validation rows, summed over the m validation rows and times n/m.
All solvers are primal-dual interior points with Mehrotra's predictor and corrector. `choice` picks one of them:

=============  ===================  =======  ==============================================  =========  ===============
solver         file                 device   used for                                        tolerance  fallback
=============  ===================  =======  ==============================================  =========  ===============
numba, line    ``line``             CPU      losses, where numba is installed                6e-7       PyTorch, dense
Triton, line   ``triton_kernels``   CUDA     losses, at most 256 rows, Triton installed      3e-7       (1)
Triton, class  ``triton_kernels``   CUDA     features, at most 256 rows, Triton installed    3e-7       (1)
PyTorch,       ``dense``            any      everything else: features on a CPU, larger      1e-8       (2)
dense                                        batches, no numba or Triton
=============  ===================  =======  ==============================================  =========  ===============

The tolerance is the relative duality gap. A line solver has a factor of the kernel of small rank, because losses are
points on a line; with numba a kernel too narrow for such a factor, or a problem that did not converge, goes to the
dense solver.

(1) Without a small factor the Triton kernels solve the dense system themselves; they return what they have after 40
iterations, and NaN for NaN.
(2) The last point: after 60 iterations, or where the Newton system is no longer finite.

With ``as_cvxopt`` the solvers of losses start and stop where cvxopt does, which for a wide kernel is far from the
optimal weights; see `dense.solve_as_cvxopt`. `steelyard.KMM`, which matches whole tables once, has solvers of its own
in `steelyard._numerics` (piqp, and an interior point for low-rank kernels).
"""
