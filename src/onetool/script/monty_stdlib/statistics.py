"""statistics: averages and spread, exact like CPython: sums are integer numerators and denominators."""

import math
from bisect import bisect_left, bisect_right
from collections import namedtuple
from decimal import Decimal

StatisticsError = ValueError
LinearRegression = namedtuple("LinearRegression", ["slope", "intercept"])


def _ratios(data):
    """Return each value as numerator and denominator, the type of the result, and the sum of infinities and NaNs."""
    pairs, kind, odd = [], int, None
    for x in data:
        own = type(x)
        if own is int or own is bool:
            pairs.append((int(x), 1))
            continue
        if own is not float and own is not Decimal:
            raise TypeError(f"can't convert type '{own.__name__}' to numerator/denominator")
        if kind is not int and kind is not own:
            raise TypeError(f"don't know how to coerce {kind.__name__} and {own.__name__}")
        kind = own
        if math.isfinite(x):
            pairs.append(Decimal(x).as_integer_ratio())
        else:
            odd = x if odd is None else odd + x
    return pairs, kind, odd


def _add(pairs):
    parts = {}
    for n, d in pairs:
        parts[d] = parts.get(d, 0) + n
    whole = math.lcm(*parts)
    return sum([n * (whole // d) for d, n in parts.items()]), whole


def _number(n, d, kind):
    if kind is Decimal:
        return Decimal(n) / Decimal(d)
    return n // d if kind is int and n % d == 0 else n / d


def _root(n, d):
    """Return the float nearest to the root of n/d: at least 64 bits of the root, with the last bit set if inexact."""
    shift = max(0, 130 + len(bin(d)) - len(bin(n))) // 2 * 2
    scaled = n << shift
    q = math.isqrt(scaled // d)
    if q * q * d != scaled:
        q |= 1
    return q / (1 << (shift // 2))


def _floats(data, problem):
    data = [float(x) for x in data]
    if not data:
        raise StatisticsError(problem)
    return data


def mean(data):
    pairs, kind, odd = _ratios(data)
    if odd is not None:
        return odd
    if not pairs:
        raise StatisticsError("mean requires at least one data point")
    n, d = _add(pairs)
    return _number(n, d * len(pairs), kind)


def fmean(data, weights=None):
    if weights is None:
        data = _floats(data, "fmean requires at least one data point")
        return math.fsum(data) / len(data)
    data, weights = [float(x) for x in data], [float(x) for x in weights]
    if len(data) != len(weights):
        raise StatisticsError("data and weights must be the same length")
    if not math.fsum(weights):
        raise StatisticsError("sum of weights must be non-zero")
    return _product(data, weights) / math.fsum(weights)


def geometric_mean(data):
    data = _floats(data, "Must have a non-empty dataset")
    if min(data) < 0:
        raise StatisticsError("No negative inputs allowed")
    return 0.0 if 0.0 in data else math.exp(math.fsum([math.log(x) for x in data]) / len(data))


def harmonic_mean(data, weights=None):
    data = list(data)
    if not data:
        raise StatisticsError("harmonic_mean requires at least one data point")
    if len(data) == 1 and weights is None and data[0] >= 0:
        return data[0]
    weights = [1] * len(data) if weights is None else list(weights)
    if len(weights) != len(data):
        raise StatisticsError("Number of weights does not match data size")
    if min(data) < 0 or min(weights) < 0:
        raise StatisticsError("harmonic mean does not support negative values")
    both = list(zip(data, weights, strict=True))
    if any(x == 0 and w for x, w in both):
        return 0
    pairs, kind, odd = _ratios([w / x if w else 0 for x, w in both])
    top, below = _add(_ratios(weights)[0])
    n, d = _add(pairs)
    if odd is not None:
        return float(top) / below / odd
    if n <= 0:
        raise StatisticsError("Weighted sum must be positive")
    return _number(top * d, below * n, kind)


def _ordered(data):
    data = sorted(data)
    if not data:
        raise StatisticsError("no median for empty data")
    return data, len(data)


def median(data):
    data, n = _ordered(data)
    return data[n // 2] if n % 2 else (data[n // 2 - 1] + data[n // 2]) / 2


def median_low(data):
    data, n = _ordered(data)
    return data[(n - 1) // 2]


def median_high(data):
    data, n = _ordered(data)
    return data[n // 2]


def median_grouped(data, interval=1.0):
    data, n = _ordered(data)
    x = data[n // 2]
    below = bisect_left(data, x)
    inside = bisect_right(data, x) - below
    return float(x) - float(interval) / 2 + float(interval) * (n / 2 - below) / inside


def multimode(data):
    """Count manually: of equal values, like 0 and 0.0, the sandbox's Counter keeps the last instead of the first."""
    counts = {}
    for x in data:
        counts.setdefault(x, [x, 0])[1] += 1
    most = max([count for _, count in counts.values()], default=0)
    return [x for x, count in counts.values() if count == most]


def mode(data):
    most = multimode(data)
    if not most:
        raise StatisticsError("no mode for empty data")
    return most[0]


def quantiles(data, *, n=4, method="exclusive"):
    if n < 1:
        raise StatisticsError("n must be at least 1")
    data = sorted(data)
    if len(data) < 2:
        if not data:
            raise StatisticsError("must have at least one data point")
        return data * (n - 1)
    if method not in ("inclusive", "exclusive"):
        raise ValueError(f"Unknown method: {method!r}")
    size = len(data) + (1 if method == "exclusive" else -1)
    first = 1 if method == "exclusive" else 0
    result = []
    for i in range(1, n):
        at = min(max(i * size // n, first), len(data) - 2 + first)
        rest = i * size - at * n
        result.append((data[at - first] * (n - rest) + data[at - first + 1] * rest) / n)
    return result


def _spread(data, middle, less, name):
    """Return the mean of squared distances from the middle, or its root for a deviation."""
    data = list(data)
    if middle is not None:
        data = [(x - middle) * (x - middle) for x in data]
    pairs, kind, odd = _ratios(data)
    if len(data) < 1 + less:
        raise StatisticsError(f"{name} requires at least {'two data points' if less else 'one data point'}")
    if odd is not None:
        return odd
    n, d = _add(pairs)
    if middle is None:
        square, below = _add([(one * one, under * under) for one, under in pairs])
        n, d = square * d * d * len(data) - n * n * below, below * d * d * len(data)
    d *= len(data) - less
    if "dev" not in name:
        return _number(n, d, kind)
    if kind is Decimal:
        return _number(n, d, kind).sqrt()
    return _root(n, d) if n else 0.0


def variance(data, xbar=None):
    return _spread(data, xbar, 1, "variance")


def pvariance(data, mu=None):
    return _spread(data, mu, 0, "pvariance")


def stdev(data, xbar=None):
    return _spread(data, xbar, 1, "stdev")


def pstdev(data, mu=None):
    return _spread(data, mu, 0, "pstdev")


def _pairwise(x, y, name):
    """Return both inputs as floats, and their distances from their means."""
    x, y = [float(one) for one in x], [float(one) for one in y]
    if len(x) != len(y):
        raise StatisticsError(f"{name} requires that both inputs have same number of data points")
    if len(x) < 2:
        raise StatisticsError(f"{name} requires at least two data points")
    return x, y, _distances(x), _distances(y)


def _distances(x):
    middle = math.fsum(x) / len(x)
    return [one - middle for one in x]


def _product(x, y):
    return math.fsum([a * b for a, b in zip(x, y, strict=True)])


def covariance(x, y, /):
    x, _, dx, dy = _pairwise(x, y, "covariance")
    return _product(dx, dy) / (len(x) - 1)


def correlation(x, y, /, *, method="linear"):
    x, y, dx, dy = _pairwise(x, y, "correlation")
    if method not in ("linear", "ranked"):
        raise ValueError(f"Unknown method: {method!r}")
    if method == "ranked":  # by rank; equal values share their average rank
        a, b = sorted(x), sorted(y)
        dx = _distances([bisect_left(a, one) + bisect_right(a, one) for one in x])
        dy = _distances([bisect_left(b, one) + bisect_right(b, one) for one in y])
    spread = math.sqrt(_product(dx, dx) * _product(dy, dy))
    if not spread:
        raise StatisticsError("at least one of the inputs is constant")
    return _product(dx, dy) / spread


def linear_regression(x, y, /, *, proportional=False):
    x, y, dx, dy = _pairwise(x, y, "linear regression")
    dx, dy = (x, y) if proportional else (dx, dy)
    if not _product(dx, dx):
        raise StatisticsError("x is constant")
    slope = _product(dx, dy) / _product(dx, dx)
    intercept = 0.0 if proportional else math.fsum(y) / len(y) - slope * math.fsum(x) / len(x)
    return LinearRegression(slope=slope, intercept=intercept)
