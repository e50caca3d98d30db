"""io.StringIO: text in memory, as needed by csv. The rest of io is missing."""


class StringIO:
    def __init__(self, initial_value="", newline="\n"):
        self._parts = [initial_value or ""]  # joined on reading, so that many small writes are cheap
        self._size = len(self._parts[0])
        self._at = 0
        self.closed = False

    def _text(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    def getvalue(self):
        return self._text()

    def write(self, s, /):
        if not isinstance(s, str):
            raise TypeError(f"string argument expected, got '{type(s).__name__}'")
        if self.closed or self._at != self._size:
            text = self._text()
            text = text + "\0" * (self._at - len(text)) if s else text
            self._parts = [text[: self._at] + s + text[self._at + len(s) :]]
            self._size = len(self._parts[0])
        else:
            self._parts.append(s)
            self._size += len(s)
        self._at += len(s)
        return len(s)

    def writelines(self, lines, /):
        for line in lines:
            self.write(line)

    def _take(self, size, end):
        if size is not None and size >= 0:
            end = min(end, self._at + size)
        start, self._at = self._at, max(end, self._at)
        return self._text()[start:end]

    def read(self, size=-1, /):
        return self._take(size, len(self._text()))

    def readline(self, size=-1, /):
        text = self._text()
        return self._take(size, text.find("\n", self._at) + 1 or len(text))

    def readlines(self, hint=-1, /):
        lines, size = [], 0
        for line in self:
            lines.append(line)
            size += len(line)
            if hint is not None and 0 < hint < size:
                break
        return lines

    def seek(self, pos, whence=0, /):
        text = self._text()
        if whence not in (0, 1, 2):
            raise ValueError(f"Invalid whence ({whence}, should be 0, 1 or 2)")
        if whence == 0 and pos < 0:
            raise ValueError(f"Negative seek position {pos}")
        if whence != 0 and pos != 0:
            raise OSError("Can't do nonzero cur-relative seeks")
        self._at = (pos, self._at, len(text))[whence]
        return self._at

    def tell(self):
        self._text()
        return self._at

    def truncate(self, size=None, /):
        size = self._at if size is None else size
        if size < 0:
            raise ValueError(f"Negative size value {size}")
        self._parts = [self._text()[:size]]
        self._size = len(self._parts[0])
        return size

    def close(self):
        self.closed = True

    def flush(self):
        self._text()

    def __iter__(self):
        return self

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
