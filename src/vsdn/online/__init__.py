"""Online: series followed as their data comes, at constant cost."""
