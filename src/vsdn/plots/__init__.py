"""Pictures: what they show, as panels, and how panels are drawn."""
