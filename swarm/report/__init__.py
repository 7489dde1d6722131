"""What a run came to: rows computed from records, and the files a person opens. Measures nothing."""
