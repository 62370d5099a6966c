"""Several settings and seeds on one prompt, side by side: which lanes there are, how they run, what came of them."""
