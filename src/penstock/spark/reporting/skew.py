"""How uneven a distribution is, from how many keys have how many jobs: never from the keys themselves."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["gini", "lorenz"]

# Points of a curve; more of them cannot be told apart on a screen.
POINTS = 120


def gini(sizes: Sequence[tuple[int, int]]) -> float:
    """The Gini coefficient of (jobs of a key, number of such keys): 0 all equal, near 1 one has all."""
    keys = sum(number for _, number in sizes)
    jobs = sum(size * number for size, number in sizes)
    if keys == 0 or jobs == 0:
        return 0.0
    below_jobs = area = 0
    for size, number in sorted(sizes):
        # Twice the area below the curve's straight piece from one size of keys to the next.
        area += number * (2 * below_jobs + size * number)
        below_jobs += size * number
    return 1 - area / (keys * jobs)


def lorenz(sizes: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Points (share of keys, share of jobs), coldest keys first, from (0, 0) to (1, 1)."""
    keys = sum(number for _, number in sizes)
    jobs = sum(size * number for size, number in sizes)
    if keys == 0 or jobs == 0:
        return []
    points = [(0.0, 0.0)]
    below_keys = below_jobs = 0
    for size, number in sorted(sizes):
        below_keys += number
        below_jobs += size * number
        points.append((below_keys / keys, below_jobs / jobs))
    return [points[0], *_thin(points[1:-1]), points[-1]]


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Only points that lie visibly apart."""
    kept: list[tuple[float, float]] = []
    for x, y in points:
        if not kept or abs(x - kept[-1][0]) + abs(y - kept[-1][1]) > 2 / POINTS:
            kept.append((x, y))
    return kept
