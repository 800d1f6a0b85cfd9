"""Tools for maintainers and instructors: authoring, records, fidelity, classroom. Not in the wheel."""

import sys

# jsonschema, a dependency of nbformat, imports this package if it is there: a second for each process, for a
# format of URLs that no schema here uses.
sys.modules.setdefault("rfc3987_syntax", None)
