"""What the streams of a transport have carried since the start, both ways: one count for all.

Letters, requests and their answers, gossip, the DHT, hellos: whatever goes through a stream. What
encryption and framing add is not in it, nor are pings; and of blobs and circuits over streams the
limits of the link keep the count themselves (see link_limits). Gossip is strangers', whoever passes
it on: any of them can have members tell it to each other.
"""


class Carried:
    """In bytes, by whether it is a member with whom they pass; gossip is of strangers."""

    def __init__(self) -> None:
        self.of_members = 0
        self.of_strangers = 0

    def note(self, size_bytes: int, is_member: bool) -> None:
        if is_member:
            self.of_members += size_bytes
        else:
            self.of_strangers += size_bytes
