"""How good are the predictions, untuned? Every named method on the same problems, with the same defaults."""
