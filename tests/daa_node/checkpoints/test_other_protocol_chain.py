"""A chain that goes on to a protocol version is judged as far as a release speaks its versions."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from daa_consensus.operations import Operation, Request, Speak, encode_operation
from daa_node.checkpoints.verify import verify_chain
from daa_node.cli import checkpoint
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.identity.other_protocol import OtherProtocol
from tests.daa_node.checkpoints.little_chain import (
    CHAIN_ID,
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    ChainMaker,
)

LAST_ROUND = 2 * EPOCH_ROUNDS  # said in the first epoch, announced for the second one


def word(index: int) -> bytes:
    keys, request = KEYS[index], Request(Speak(KEYS[index].node_id, 2), 1)
    said = request.statement(CHAIN_ID)
    signature = keys.sign(said.sign_bytes(), said.context)
    return encode_operation(Operation(request, ((keys.node_id, signature),)))


def chain_that_goes_on(directory: Path, speakers: int) -> Path:
    maker = ChainMaker(directory)

    async def run() -> None:
        await maker.open()
        maker.operations = tuple(word(index) for index in range(speakers))
        for _ in range(LAST_ROUND):
            await maker.publish(await maker.make_round())
            maker.operations = ()

    trio.run(run)
    return maker.chain_directory


def test_a_verifier_says_up_to_where_it_can_judge_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = DataDirectory(tmp_path)
    chain = chain_that_goes_on(tmp_path, 3)
    with pytest.raises(OtherProtocol) as stopped:
        verify_chain(chain, FACTS)
    assert (stopped.value.version, stopped.value.last_round) == (2, LAST_ROUND)
    newer = verify_chain(chain, replace(FACTS, speaks=range(1, 3)))
    assert (newer.ok, newer.heights) == (True, LAST_ROUND)
    # as `daa-node checkpoint verify` says it
    made = SimpleNamespace(chain_id=CHAIN_ID)
    monkeypatch.setattr(checkpoint, "open_chain", lambda _root: (directory, made))
    monkeypatch.setattr(checkpoint, "chain_facts", lambda _made: FACTS)
    with pytest.raises(UserError) as told:
        checkpoint.verify(tmp_path, None, None, as_json=False)
    assert told.value.exit_code == 1
    assert f"proved up to round {LAST_ROUND}" in str(told.value)
    assert f"from round {LAST_ROUND + 1} on this network uses protocol 2" in str(told.value)
    assert "install a newer release" in str(told.value)
    assert "nothing of these rounds" not in str(told.value)
    assert not capsys.readouterr().out


def test_words_of_fewer_than_a_quorum_stop_nobody(tmp_path: Path) -> None:
    assert verify_chain(chain_that_goes_on(tmp_path, 2), FACTS).ok
