"""The vertex that a chain must hold is kept whole, for each network its own."""

from pathlib import Path

import pytest

from daa_consensus.roll import Admission
from daa_dag.ids import ChainId, VertexId
from daa_node import genesis
from daa_node.cli import compose, identity
from daa_node.cli.trusted import keep_trusted, read_trusted
from daa_node.errors import UserError

HERE, OTHER = ChainId(b"h" * 32), ChainId(b"o" * 32)
GOLDEN = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()


def test_each_network_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trusted"
    assert read_trusted(path) == {}
    keep_trusted(path, HERE, VertexId(b"1" * 32))
    keep_trusted(path, OTHER, VertexId(b"2" * 32))
    keep_trusted(path, HERE, VertexId(b"3" * 32))
    assert read_trusted(path) == {HERE: VertexId(b"3" * 32), OTHER: VertexId(b"2" * 32)}


@pytest.mark.parametrize("text", ["", "\n", "ab cd\n", f"{'zz' * 32} {'00' * 32}", f"{'00' * 32}"])
def test_a_damaged_file_stops_the_node_and_is_named(tmp_path: Path, text: str) -> None:
    """Else a slip of an editor would let in another past."""
    path = tmp_path / "trusted"
    path.write_text(text)
    with pytest.raises(UserError, match="trusted"):
        read_trusted(path)


def test_a_start_holds_the_chain_to_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = genesis.parse("genesis.json", GOLDEN)
    assert made.job.trainers.admission is Admission.CLOSED
    root, held = tmp_path / "node", []
    identity.create_node(root, "", genesis_text=GOLDEN)
    keep_trusted(root / "trusted", made.chain_id, VertexId(b"v" * 32))
    keep_trusted(root / "trusted", OTHER, VertexId(b"o" * 32))

    class Seen(Exception):
        pass

    def daemon(*parts: object) -> None:
        held.append(parts[-1])
        raise Seen

    monkeypatch.setattr(compose, "_Daemon", daemon)
    with pytest.raises(Seen):
        compose.run_daemon(root, None, (), with_parent=False)
    assert held == [VertexId(b"v" * 32)]
