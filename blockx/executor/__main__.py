"""`python -m blockx.executor --socket PATH [--token-file FILE]`: what a worker starts, and people in containers may."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import trio

from blockx.executor.app import ignore_interrupts, run_executor

TOKEN_VARIABLE = "BLOCKX_EXECUTOR_TOKEN"  # the variable's name, not a token


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m blockx.executor", description="Run functions for one worker.")
    parser.add_argument("--socket", required=True, help="the worker's Unix socket")
    parser.add_argument("--token-file", type=Path, help=f"file with the token; without it, {TOKEN_VARIABLE} is taken")
    options = parser.parse_args()
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if options.token_file is not None:
        try:
            token = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            parser.error(f"the token file cannot be read: {error}")
    ignore_interrupts()
    return trio.run(run_executor, options.socket, token)


if __name__ == "__main__":
    sys.exit(main())
