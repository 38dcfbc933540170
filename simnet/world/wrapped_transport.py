"""A transport around another one, for those that change what streams carry and nothing else."""

from daa_node.seams import PeerId, Transport


class WrappedTransport:
    """All of a Transport but its streams: who inherits it says what becomes of these."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.addresses, self.connected = inner.addresses, inner.connected
        self.dial, self.hang_up, self.network_of = inner.dial, inner.hang_up, inner.network_of
        self.guard, self.set_record_judge = inner.guard, inner.set_record_judge
        self.keep_visitor = inner.keep_visitor
        self.join_topic, self.publish = inner.join_topic, inner.publish
        self.put_record, self.get_record = inner.put_record, inner.get_record
        self.provide, self.find_providers = inner.provide, inner.find_providers

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id
