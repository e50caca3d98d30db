"""statistics: averages and spread, exact as in CPython: sums are kept as integer numerators and denominators.

It runs inside the sandbox, and imports only what that has itself: `NATIVE` in script/rewrite.py.
"""

import math
from bisect import bisect_left, bisect_right
from collections import namedtuple
from decimal import Decimal

StatisticsError = ValueError
LinearRegression = namedtuple("LinearRegression", ["slope", "intercept"])


def _ratios(data):
    """Each value as numerator and denominator, the type of the result, and what infinities and NaNs add up to."""
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
    """The float nearest to the square root of n/d: at least 64 bits of it, the last one set when there is more."""
    shift = max(0, 130 + len(bin(d)) - len(bin(n))) // 2 * 2
    scaled = n << shift
    q = math.isqrt(scaled // d)
    if q * q * d != scaled:
        q |= 1
    return q / (1 << (shift // 2))


def mean(data):
    pairs, kind, odd = _ratios(data)
    if odd is not None:
        return odd
    if not pairs:
        raise StatisticsError("mean requires at least one data point")
    n, d = _add(pairs)
    return _number(n, d * len(pairs), kind)


def fmean(data, weights=None):
    data = [float(x) for x in data]
    if weights is None:
        if not data:
            raise StatisticsError("fmean requires at least one data point")
        return math.fsum(data) / len(data)
    weights = [float(x) for x in weights]
    if len(data) != len(weights):
        raise StatisticsError("data and weights must be the same length")
    total = math.fsum(weights)
    if not total:
        raise StatisticsError("sum of weights must be non-zero")
    return math.fsum([x * w for x, w in zip(data, weights, strict=True)]) / total


def geometric_mean(data):
    data = [float(x) for x in data]
    if not data:
        raise StatisticsError("Must have a non-empty dataset")
    if any(x < 0 for x in data):
        raise StatisticsError("No negative inputs allowed")
    if 0.0 in data:
        return 0.0
    return math.exp(math.fsum([math.log(x) for x in data]) / len(data))


def harmonic_mean(data, weights=None):
    data = list(data)
    if not data:
        raise StatisticsError("harmonic_mean requires at least one data point")
    if any(x < 0 for x in data):
        raise StatisticsError("harmonic mean does not support negative values")
    if len(data) == 1 and weights is None:
        return data[0]
    weights = [1] * len(data) if weights is None else list(weights)
    if len(weights) != len(data):
        raise StatisticsError("Number of weights does not match data size")
    if any(w < 0 for w in weights):
        raise StatisticsError("harmonic mean does not support negative values")
    if any(x == 0 and w for x, w in zip(data, weights, strict=True)):
        return 0
    pairs, kind, odd = _ratios([w / x if w else 0 for x, w in zip(data, weights, strict=True)])
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
    interval = float(interval)
    return float(x) - interval / 2 + interval * (n / 2 - below) / inside


def _most(data):
    """The values that come most often, in order.

    By hand: of values that are equal, like 0 and 0.0, the sandbox's Counter keeps the last and not the first.
    """
    counts = {}
    for x in data:
        if x in counts:
            counts[x][1] += 1
        else:
            counts[x] = [x, 1]
    most = max([count for _, count in counts.values()], default=0)
    return [x for x, count in counts.values() if count == most]


def mode(data):
    most = _most(data)
    if not most:
        raise StatisticsError("no mode for empty data")
    return most[0]


def multimode(data):
    return _most(data)


def quantiles(data, *, n=4, method="exclusive"):
    if n < 1:
        raise StatisticsError("n must be at least 1")
    data = sorted(data)
    size = len(data)
    if size < 2:
        if size < 1:
            raise StatisticsError("must have at least one data point")
        return data * (n - 1)
    result = []
    if method == "inclusive":
        for i in range(1, n):
            at, rest = divmod(i * (size - 1), n)
            result.append((data[at] * (n - rest) + data[at + 1] * rest) / n)
    elif method == "exclusive":
        for i in range(1, n):
            at = min(max(i * (size + 1) // n, 1), size - 1)
            rest = i * (size + 1) - at * n
            result.append((data[at - 1] * (n - rest) + data[at] * rest) / n)
    else:
        raise ValueError(f"Unknown method: {method!r}")
    return result


def _squares(data, middle, less, name):
    """The mean of squared distances from the middle, as numerator, denominator and type; or what makes it endless."""
    data = list(data)
    if middle is not None:
        data = [(x - middle) * (x - middle) for x in data]
    pairs, kind, odd = _ratios(data)
    if len(data) < 1 + less:
        raise StatisticsError(f"{name} requires at least {'two data points' if less else 'one data point'}")
    n, d = _add(pairs)
    if middle is None:
        square, below = _add([(one * one, under * under) for one, under in pairs])
        n, d = square * d * d * len(data) - n * n * below, below * d * d * len(data)
    return n, d * (len(data) - less), kind, odd


def _variance(data, middle, less, name):
    n, d, kind, odd = _squares(data, middle, less, name)
    return _number(n, d, kind) if odd is None else odd


def _deviation(data, middle, less, name):
    n, d, kind, odd = _squares(data, middle, less, name)
    if odd is not None:
        return odd
    if kind is Decimal:
        return _number(n, d, kind).sqrt()
    return _root(n, d) if n else 0.0


def variance(data, xbar=None):
    return _variance(data, xbar, 1, "variance")


def pvariance(data, mu=None):
    return _variance(data, mu, 0, "pvariance")


def stdev(data, xbar=None):
    return _deviation(data, xbar, 1, "stdev")


def pstdev(data, mu=None):
    return _deviation(data, mu, 0, "pstdev")


def _pairwise(x, y, name):
    x, y = [float(one) for one in x], [float(one) for one in y]
    if len(x) != len(y):
        raise StatisticsError(f"{name} requires that both inputs have same number of data points")
    if len(x) < 2:
        raise StatisticsError(f"{name} requires at least two data points")
    return x, y


def _distances(x):
    middle = math.fsum(x) / len(x)
    return [one - middle for one in x]


def _product(x, y):
    return math.fsum([a * b for a, b in zip(x, y, strict=True)])


def _ranks(x):
    """Each value's place among the sorted ones; equal values share the middle of theirs."""
    ordered = sorted(x)
    return [(bisect_left(ordered, one) + bisect_right(ordered, one) + 1) / 2 for one in x]


def covariance(x, y, /):
    x, y = _pairwise(x, y, "covariance")
    return _product(_distances(x), _distances(y)) / (len(x) - 1)


def correlation(x, y, /, *, method="linear"):
    x, y = _pairwise(x, y, "correlation")
    if method not in ("linear", "ranked"):
        raise ValueError(f"Unknown method: {method!r}")
    if method == "ranked":
        x, y = _ranks(x), _ranks(y)
    x, y = _distances(x), _distances(y)
    spread = math.sqrt(_product(x, x) * _product(y, y))
    if not spread:
        raise StatisticsError("at least one of the inputs is constant")
    return _product(x, y) / spread


def linear_regression(x, y, /, *, proportional=False):
    x, y = _pairwise(x, y, "linear regression")
    dx, dy = (x, y) if proportional else (_distances(x), _distances(y))
    spread = _product(dx, dx)
    if not spread:
        raise StatisticsError("x is constant")
    slope = _product(dx, dy) / spread
    intercept = 0.0 if proportional else math.fsum(y) / len(y) - slope * math.fsum(x) / len(x)
    return LinearRegression(slope=slope, intercept=intercept)
