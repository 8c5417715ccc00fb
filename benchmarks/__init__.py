"""Speed of training steps and predictions beside other libraries, and quality of all methods on fixed problems."""
