"""Answers: what is asked of a model, the methods that answer, and the scores of answers."""
