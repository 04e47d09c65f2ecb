"""Files of other tools, told by what is in them and never by their names, as `Records`, `Summary` or `Workload`.

Every format has a file of its own in this package with two functions: `recognises` says from the first keys of a text
which of its formats it is, `read` gives its runs. All of them read plain, gzip and Zstandard files and hold columns of
numbers, never a document. A row at fault is left out, counted by reason and named; what came before a fault is kept.
"""

from tokenpulse.readers.detection import HEAD, OWN, detect, head, needs_more
from tokenpulse.readers.opening import read

__all__ = ["HEAD", "OWN", "detect", "head", "needs_more", "read"]
