"""Something-Something V2: an archive or a folder, and the JSON labels -> manifest.csv.

  cat 20bn-something-something-v2-?? > ssv2.tar.gz # its pieces make one archive
  python prepare_ssv2.py ssv2.tar.gz --lists labels --out data/ssv2
  python prepare_ssv2.py data/20bn-something-something-v2 --lists train.json validation.json \\
    test.json labels.json --out data

220,847 videos, 174 classes: the templates without brackets. The validation part becomes test.
"""

from command import main

if __name__ == "__main__":
    main("ssv2", __doc__)
