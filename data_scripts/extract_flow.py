"""Optical flow of every video of a manifest -> flow videos, and the manifest that names them.

  python extract_flow.py data/ucf101
  python extract_flow.py data/ucf101 --method raft --weights raft_large_C_T_SKHT_V2-ff5fadd5.pth \\
    --out flow_raft --manifest manifest_raft.csv
  torchrun --nproc-per-node 8 extract_flow.py data/ucf101

Stop it when you like and run it again: what is finished stays, what is missing is done.
The same as `vssl-nb flow`.
"""
import sys

from vssl_nb.cli import main

if __name__ == '__main__': sys.exit(main(['flow', *sys.argv[1:]]))
