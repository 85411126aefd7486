"""Online inference: series followed as their data arrive, at constant cost per update."""
