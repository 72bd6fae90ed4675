"""A folder of your own videos -> manifest.csv; the folders in it are the classes.

  python prepare_folder.py my_videos
  python prepare_folder.py my_videos.zip --out data/mine --source-pattern "(camera[0-9]+_[0-9-]+)"

Videos cut from one recording must share their source; the pattern says which part of a path names
it.
"""

from command import main

if __name__ == "__main__":
    main("folder", __doc__)
