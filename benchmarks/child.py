"""The process of one measurement: ``python -m benchmarks.child MODULE FUNCTION JSON``."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from .measure import RESULT


def main() -> None:
    module, function, arguments = sys.argv[1:]
    numbers = getattr(import_module(module), function)(**json.loads(arguments))
    sys.stdout.write(f"\n{RESULT}{json.dumps(numbers or {})}\n")


if __name__ == "__main__":
    main()
