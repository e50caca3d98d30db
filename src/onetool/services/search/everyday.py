"""Words that say nothing about which tool is wanted: the grammar of English, and the way people ask for things.

The second kind matters most. In a few thousand short descriptions `please` or `looking` is rare, so rarity alone would
make it weigh more than the word that counts.
"""

GRAMMAR = """
a about above actually after again all already also although always am among an and another any anyone anything are
aren as at be because been before being below between both but by can cannot could couldn d did didn do does doesn
doing don done down during each either else etc ever every everybody everyone everything few for from further had hadn
has hasn have haven having he her here hers herself him himself his how however i if in into is isn it its itself just
ll m may maybe me might more most must my myself no nobody nor not nothing of off on once only or other ought our ours
out over own per quite rather re really s same shall she should shouldn since so some somebody someone something still
such t than that the their theirs them themselves then there these they this those though through to too towards under
until up upon us ve very via was wasn we were weren what whatever when where whether which while who whom whose why
will with within without won would wouldn yet you your yours yourself
"""
ASKING = """
able assist get gets getting give gives go going got hello help hey hi kind know let like look looking make need needs
please possible sure tell thank thanks thing things use used using want wanted wants way ways
"""

EVERYDAY = frozenset((GRAMMAR + ASKING).split())
