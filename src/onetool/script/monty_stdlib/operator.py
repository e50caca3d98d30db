"""operator: operators as functions, itemgetter, attrgetter. `abs`, `methodcaller` and in-place ones are missing.

It runs inside the sandbox, and imports only what that has itself: `NATIVE` in script/rewrite.py.
"""


def itemgetter(item, /, *items):
    if not items:
        return lambda obj: obj[item]
    return lambda obj: tuple([obj[one] for one in (item, *items)])


def _attribute(obj, dotted):
    for name in dotted.split("."):
        obj = getattr(obj, name)
    return obj


def attrgetter(attr, /, *attrs):
    if not attrs:
        return lambda obj: _attribute(obj, attr)
    return lambda obj: tuple([_attribute(obj, one) for one in (attr, *attrs)])


def add(a, b, /):
    return a + b


concat = add


def sub(a, b, /):
    return a - b


def mul(a, b, /):
    return a * b


def truediv(a, b, /):
    return a / b


def floordiv(a, b, /):
    return a // b


def mod(a, b, /):
    return a % b


def pow(a, b, /):
    return a**b


def neg(a, /):
    return -a


def pos(a, /):
    return +a


def and_(a, b, /):
    return a & b


def or_(a, b, /):
    return a | b


def xor(a, b, /):
    return a ^ b


def invert(a, /):
    return ~a


inv = invert


def lshift(a, b, /):
    return a << b


def rshift(a, b, /):
    return a >> b


def eq(a, b, /):
    return a == b


def ne(a, b, /):
    return a != b


def lt(a, b, /):
    return a < b


def le(a, b, /):
    return a <= b


def gt(a, b, /):
    return a > b


def ge(a, b, /):
    return a >= b


def is_(a, b, /):
    return a is b


def is_not(a, b, /):
    return a is not b


def not_(a, /):
    return not a


def truth(a, /):
    return bool(a)


def contains(a, b, /):
    return b in a


def countOf(a, b, /):
    return sum([1 for one in a if one is b or one == b])


def indexOf(a, b, /):
    for i, one in enumerate(a):
        if one is b or one == b:
            return i
    raise ValueError("sequence.index(x): x not in sequence")


def getitem(a, b, /):
    return a[b]


def setitem(a, b, c, /):
    a[b] = c


def delitem(a, b, /):
    a.pop(b)
