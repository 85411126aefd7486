"""Grids: the exact solver times of each series, and where queries branch off."""
