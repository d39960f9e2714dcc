"""One page on one run, or on several side by side: `gather` what they hold, draw its `charts`, lay out the `page`."""
