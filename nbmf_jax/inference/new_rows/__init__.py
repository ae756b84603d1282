"""New rows of V given the other factor, without refitting."""
