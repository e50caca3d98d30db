"""heapq: heaps in lists, laid out as CPython lays them out."""


def _up(heap, start, at):
    """Move an item towards the root while it is smaller than its parent."""
    item = heap[at]
    while at > start:
        parent = (at - 1) // 2
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


def _down(heap, at):
    """Move smaller children up until the gap is a leaf, put the item there, and move it up as far as needed."""
    size, start, item = len(heap), at, heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and not heap[child] < heap[child + 1]:
            child += 1
        heap[at] = heap[child]
        at = child
    heap[at] = item
    _up(heap, start, at)


def heapify(x, /):
    for at in range(len(x) // 2 - 1, -1, -1):
        _down(x, at)


def heappush(heap, item, /):
    heap.append(item)
    _up(heap, 0, len(heap) - 1)


def heapreplace(heap, item, /):
    if not heap:
        raise IndexError("index out of range")
    least, heap[0] = heap[0], item
    _down(heap, 0)
    return least


def heappop(heap, /):
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return heapreplace(heap, last) if heap else last


def heappushpop(heap, item, /):
    return heapreplace(heap, item) if heap and heap[0] < item else item


def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[: max(n, 0)]


def merge(*iterables, key=None, reverse=False):
    """Merge eagerly: for sorted inputs a stable sort has the same result."""
    return iter(sorted([item for one in iterables for item in one], key=key, reverse=reverse))
