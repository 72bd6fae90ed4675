"""Somebody's masked method, in the manner of V-JEPA: predict the tokens that a slow copy makes."""
