"""What builds a box: standard library only, nothing else of ours, so that it starts in milliseconds."""
