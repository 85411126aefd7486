"""Grids: each series on its own exact times, and where queries branch off."""
