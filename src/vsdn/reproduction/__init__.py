"""Reproduction of the paper's tables and figures: plans as data, resumable runs, results with provenance."""
