"""shlex: splits and quotes the words of a command line as a POSIX shell does."""

import re


def split(s, comments=False, posix=True):
    if not posix:
        raise NotImplementedError("only posix=True")
    words, word, quote, i = [], None, "", 0
    while i < len(s):
        c = s[i]
        i += 1
        if quote and c == quote:
            quote = ""
        elif c == "\\" and quote != "'":
            if i == len(s):
                raise ValueError("No escaped character")
            after = s[i]
            i += 1
            word = (word or "") + ("\\" + after if quote and after not in ('"', "\\") else after)
        elif quote:
            word = (word or "") + c
        elif c in "'\"":
            quote, word = c, word or ""
        elif c in " \t\r\n":
            if word is not None:
                words.append(word)
            word = None
        elif c == "#" and comments:
            end = s.find("\n", i)
            i = len(s) if end < 0 else end
        else:
            word = (word or "") + c
    if quote:
        raise ValueError("No closing quotation")
    return words if word is None else [*words, word]


def quote(s):
    if not s:
        return "''"
    if not re.search("[^A-Za-z0-9_@%+=:,./-]", s):
        return s
    return "'" + s.replace("'", "'\"'\"'") + "'"


def join(split_command):
    return " ".join([quote(word) for word in split_command])
