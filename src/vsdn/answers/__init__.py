"""Answers: requests, the methods that answer them, inference, scores, and replies as frames of the user's kind."""
