"""``python -m webhook.cli``: the command where no script of it is on the path."""

from webhook.cli import main

if __name__ == "__main__":
    main()
