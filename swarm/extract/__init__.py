"""Cut the hot parts of somebody's model into problems.

`child` runs in a sandbox with torch and the model; everything here sees data alone.
"""
