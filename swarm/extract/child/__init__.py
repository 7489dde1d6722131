"""What runs in the box of an extraction: torch, and the model's own code."""
