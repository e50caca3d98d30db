"""operator: operators as functions, itemgetter, attrgetter. `abs`, `methodcaller` and in-place ones are missing."""


def itemgetter(item, /, *items):
    return lambda obj: tuple([obj[one] for one in (item, *items)]) if items else obj[item]


def attrgetter(attr, /, *attrs):
    def get(obj, dotted):
        for name in dotted.split("."):
            obj = getattr(obj, name)
        return obj

    return lambda obj: tuple([get(obj, one) for one in (attr, *attrs)]) if attrs else get(obj, attr)


add = concat = lambda a, b, /: a + b
sub = lambda a, b, /: a - b
mul = lambda a, b, /: a * b
truediv = lambda a, b, /: a / b
floordiv = lambda a, b, /: a // b
mod = lambda a, b, /: a % b
pow = lambda a, b, /: a**b
neg = lambda a, /: -a
pos = lambda a, /: +a
and_ = lambda a, b, /: a & b
or_ = lambda a, b, /: a | b
xor = lambda a, b, /: a ^ b
invert = inv = lambda a, /: ~a
lshift = lambda a, b, /: a << b
rshift = lambda a, b, /: a >> b
eq = lambda a, b, /: a == b
ne = lambda a, b, /: a != b
lt = lambda a, b, /: a < b
le = lambda a, b, /: a <= b
gt = lambda a, b, /: a > b
ge = lambda a, b, /: a >= b
is_ = lambda a, b, /: a is b
is_not = lambda a, b, /: a is not b
not_ = lambda a, /: not a
truth = lambda a, /: bool(a)
contains = lambda a, b, /: b in a
countOf = lambda a, b, /: sum([1 for one in a if one is b or one == b])
getitem = lambda a, b, /: a[b]


def indexOf(a, b, /):
    for i, one in enumerate(a):
        if one is b or one == b:
            return i
    raise ValueError("sequence.index(x): x not in sequence")


def setitem(a, b, c, /):
    a[b] = c


def delitem(a, b, /):
    a.pop(b)
