"""Run a command of the course: python3 -m course_utils COMMAND.

This file keeps to syntax that an old Python 3 can read, so that it can say that it is too old.
"""

import sys

from course_language import _

OLDEST = (3, 10)


def main():
    """Refuse an old Python in one sentence; hand everything else to course_utils.cli."""
    if sys.version_info < OLDEST:
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
    from course_utils.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
