"""Break runs in every way that a machine may, and see that nothing is lost: the parts of `tools/survive.py`.

``killing``   kills at random moments and damaged checkpoints of runs made in Python; the tests use them
``trial``     one run by command in a process of its own: how it ended, and whether as the undisturbed run did
``faults``    what is broken inside that process: operations on files, the clock, locks, memory, file handles
``bench``     where the tries are made, and the undisturbed runs
``kinds``     kills, flips, clocks, locks, memory, handles, two processes, workers: a generator of tries for each
``disks``     disks that are full or read-only, folders that vanish
``ranks``     runs in two processes, one of them killed or stopped
``table``     shares of time, and what became of the tries
"""

from .killing import METHODS, damage, digits, kill_at_random, outcome, saved_state, silent_damages, train, whole_run

__all__ = [
    "METHODS",
    "damage",
    "digits",
    "kill_at_random",
    "outcome",
    "saved_state",
    "silent_damages",
    "train",
    "whole_run",
]
