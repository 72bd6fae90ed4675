"""Somebody's LeJEPA with clips of three sizes: those of the recipe, and two further groups."""
