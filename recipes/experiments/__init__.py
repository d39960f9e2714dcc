"""The claims of the papers that this toolkit stands on, measured again: one file an experiment."""
