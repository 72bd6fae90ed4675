"""Where the time of a new query goes, part by part; `search.py` runs this in a process of its own.

    python benchmarks/search_parts.py QUERY FOLDER

Prints seconds of the processor as JSON. Imports stand where the command line has them: they are
parts of their own."""

import json
import sys
import time

laps = {}
since = time.process_time()
laps["Python"] = since


def lap(name: str) -> None:
    "The part that ends here."
    global since
    now = time.process_time()
    laps[name] = now - since
    since = now


query, folder = sys.argv[1:]

from vssl_nb.app import cli

lap("our command line, without PyTorch")

from vssl_nb.app import search

asked = cli.parse("search", [query, "--data", folder])
lap("NumPy, the options")

home, encoder, clips = search.choose_index(asked.data)
index, _ = search.update_index(home, asked.data, encoder, clips)
q = search.parse_query(query, asked.data, index.videos)
lap("a look at all files, the index")

import vssl_nb.measure.features  # noqa: F401

lap("PyTorch, and our modules that need it")

encoder.network
lap("the network: build, read, check")

x = search.query_features(index, [q], encoder)
lap("ten clips: decode, encode")

nearest = search.find_nearest(index, [q], x)
search.as_text([q], nearest)
lap("search")

print(json.dumps(laps))
