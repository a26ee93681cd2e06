"""A row of logits as a kernel reads it: lane by lane over all parts, and the lanes only then together.

So nothing waits for the part before.
"""

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU
    triton = None

__all__ = ["load", "scan"]

if triton is not None:

    @triton.jit
    def scan(logits_, vocabulary, N: tl.constexpr):
        """Of each lane the largest number, where it stands first, and the sum of exp(x − it)."""
        lane = tl.arange(0, N)
        tops, places, sums = tl.full([N], float("-inf"), tl.float32), lane, tl.zeros([N], tl.float32)
        for start in range(0, vocabulary, N):
            x = load(logits_, start + lane, vocabulary)
            higher = tl.maximum(tops, x)
            finite = tl.where(higher == float("-inf"), 0.0, higher)
            sums = sums * tl.exp(tops - finite) + tl.exp(x - finite)
            places = tl.where(x > tops, start + lane, places)
            tops = higher
        return tops, places, sums

    @triton.jit
    def load(logits_, j, vocabulary):
        return tl.load(logits_ + j, mask=j < vocabulary, other=float("-inf")).to(tl.float32)
