"""The experiments of ``python -m course_utils record``: a function for each result that lessons quote.

``experiments.py`` says what an experiment is; ``lessonNN.py`` holds those that lesson NN quotes; ``files.py``
keeps the results. A recorded number and a learner's own come from the same lines.
"""

import importlib
import pkgutil

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    if _module.startswith("lesson"):
        importlib.import_module(f"{__name__}.{_module}")  # registers its experiments
