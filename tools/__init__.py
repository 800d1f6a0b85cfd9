"""What makes and keeps the course: authoring, records, claims' pages, classroom. Not in the wheel."""

import sys

# jsonschema, which nbformat brings, reads a whole grammar when it is imported: a second in each process, for
# a format of addresses that no schema here names. It does without.
sys.modules.setdefault("rfc3987_syntax", None)
