"""`onetool ask`: a model with these tools, at the command line.

command   its options                                  switch    --with-tools, with and without a value
question  what is asked, with what is attached         stdin     standard input, which is never waited for in vain
asking    one question, from here to its exit code     approving a person says yes or no to a call
showing   what happens, as it happens                  lines     the words for that
arguments of a call, for who decides by them           silence   of a model that somebody waits for
"""

from onetool.interfaces.cli.ask.command import ask

__all__ = ["ask"]
