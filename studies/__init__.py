"""Studies: the claims of the five papers, tried by comparisons of methods, with a verdict on each."""
