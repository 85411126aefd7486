"""One training step of a latent SDE with path KL, written with each of the field's tools: the same work for all."""
