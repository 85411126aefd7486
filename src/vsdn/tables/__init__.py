"""Tables: reads any frame or file, checks it once on entry, and returns frames of the same kind."""
