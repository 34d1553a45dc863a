"""Run the whole example: web, worker and a stream of jobs, until Ctrl-C.

    python example_project/demo.py [--port 8000] [--seconds N]

`make demo` calls it. DATABASE_URL=postgres://… chooses PostgreSQL; config/settings.py
has the other variables. The implementation is in launcher/.
"""

import argparse
import os
import sys

import django
from django.core.exceptions import ImproperlyConfigured


def main() -> int:
    options = parse_arguments()
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    try:
        django.setup()
    except ImproperlyConfigured as error:
        return fail(error)
    # These imports need the models, and thus the settings above.
    from launcher.children import ChildFailed
    from launcher.demo import Demo
    from launcher.preparation import NotPrepared

    try:
        Demo(port=options.port, seconds=options.seconds).run()
    except (NotPrepared, ChildFailed) as error:
        return fail(error)
    except BrokenPipeError:
        # The reader of our output has exited (`make demo | head`): print no traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="the first port to try (default 8000)"
    )
    parser.add_argument(
        "--seconds", type=float, help="stop after this many (default: at Ctrl-C)"
    )
    return parser.parse_args()


def fail(error: Exception) -> int:
    print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
