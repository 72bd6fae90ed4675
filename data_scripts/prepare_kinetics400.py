"""Kinetics-400: CSV lists and whatever videos there are -> manifest.csv.

  python prepare_kinetics400.py data/k400/videos --lists train.csv val.csv --out data/k400

Videos are <id>.mp4 or <id>_000010_000020.mp4, in folders or flat. The official val part
becomes test; videos of the official test part are in neither.
The listed videos that are not there are in .prepare/missing.txt.
"""

from command import main

if __name__ == "__main__":
    main("kinetics400", __doc__)
