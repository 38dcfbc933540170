"""The worker process that trains: `python -m daa_node.training.worker --fd N`.

Started by its daemon alone.
"""

import argparse

from daa_node import collector


def main() -> None:
    """Serves until the daemon closes the socket."""
    arguments = argparse.ArgumentParser(prog="daa_node.training.worker")
    arguments.add_argument("--fd", type=int, required=True, help="our end of the daemon's socket")
    descriptor = arguments.parse_args().fd
    collector.spare_imports()
    from daa_node.training.torch_worker import serve

    collector.end_imports()
    serve(descriptor)


if __name__ == "__main__":
    main()
