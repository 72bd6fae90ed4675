"""Optical flow of every video of a manifest -> flow videos, and the manifest that names them.

  python extract_flow.py data/ucf101
  python extract_flow.py data/ucf101 --method dis --out flow_dis --manifest manifest_dis.csv
  torchrun --nproc-per-node 8 extract_flow.py data/ucf101

Stop it when you like and run it again: what is finished stays, what is missing is done.
The same as `vssl-nb flow`.
"""

import sys

from vssl_nb.app.cli import main

if __name__ == "__main__":
    sys.exit(main(["flow", *sys.argv[1:]]))
