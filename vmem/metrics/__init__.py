"""How well a system retrieves and answers, with the uncertainty of every mean."""
