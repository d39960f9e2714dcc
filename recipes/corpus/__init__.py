"""The embedded corpus of `make demo`: expressions as speakers of a language write them, in sentences of our own."""
