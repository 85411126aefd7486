"""Memories: h, the deterministic hidden state, what it may keep of the data, and the encoders of VSDN's posteriors."""
