"""The paper's tables and figures: plans as data, runs that can be stopped at any moment, results with their origin."""
