"""`python -m daa_node` is `daa-node`."""

from daa_node.cli.main import main

if __name__ == "__main__":
    main()
