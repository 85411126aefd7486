"""Tables: any frame or file in, checked once at the border; frames of the same kind out."""
