"""Somebody's own method, view, backbone, miner and recipe."""
