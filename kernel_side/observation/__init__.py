"""What a model looked at and thought at each token: attention and the logit lens, kept when a run asks for it."""
