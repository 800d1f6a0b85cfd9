"""What ``python -m course_utils benchmark`` runs: the course's loops beside others', in turns.

``comparison.py`` times two things in turns; ``loops.py`` has the loops written by hand, ``peers.py`` those of
other packages, ``ladder.py`` the capstone's steps, ``mlp.py`` the race to an accuracy. The experiments
of lesson 09 run them, so ``record`` keeps what they find.
"""
