"""Answers: the questions put to a model, the methods that answer them, and the scoring of answers."""
