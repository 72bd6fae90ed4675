"""UCF101: archives or folders -> manifest.csv.

  python prepare_ucf101.py UCF101.rar \\
    --lists UCF101TrainTestSplits-RecognitionTask.zip --out data/ucf101
  python prepare_ucf101.py data/UCF-101 --lists data/ucfTrainTestlist

13,320 videos, 101 classes, three splits; the source of a video is its group (Archery/g08).
"""

from command import main

if __name__ == "__main__":
    main("ucf101", __doc__)
