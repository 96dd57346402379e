"""Random harm done to the whole product while clients use it, and the proof that nothing came of it."""
