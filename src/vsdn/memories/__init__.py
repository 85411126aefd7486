"""Memories: the deterministic hidden state h, the keepers of past values, and the encoders of VSDN's posteriors."""
