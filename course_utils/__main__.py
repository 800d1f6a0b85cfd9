"""Run a command of the course: python3 -m course_utils COMMAND.

This file uses only syntax that an old Python 3 can parse, so that it can print that Python is too old.
"""

import sys

from course_language import _

OLDEST_PYTHON = (3, 10)


def main():
    """Run the command line; return its exit status, or 1 with a message if this Python is too old."""
    if sys.version_info < OLDEST_PYTHON:
        found = "{}.{}".format(*sys.version_info[:2])
        sys.stderr.write(
            _("This course needs Python 3.10 or newer, and this is Python ")
            + found
            + _(
                ": install one "
                "from https://www.python.org/downloads/ and call it by name, for example  "
                "python3.12 -m course_utils lab\n"
            )
        )
        return 1
    import course_language

    course_language.from_system()
    from course_utils import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
