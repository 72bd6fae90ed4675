"""HMDB51: archives or folders -> manifest.csv.

  python prepare_hmdb51.py hmdb51_org.rar --lists test_train_splits.rar --out data/hmdb51
  python prepare_hmdb51.py data/hmdb51 --lists data/testTrainMulti_7030_splits --drop released

6,766 videos, 51 classes, three splits; the source of a video is its film within the class
(wave/TrumanShow).
"""

from command import main

if __name__ == "__main__":
    main("hmdb51", __doc__)
