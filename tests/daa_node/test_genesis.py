"""A network's beginning: made from proven records, and refused when anything in it was touched."""

import json
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

from daa_node.errors import UserError
from daa_node.genesis import NONCE_BYTES, Genesis, Job, check_rules_of, create, parse
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role, encode_record, sign_record
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.seams import Address
from daa_node.training.config import InnerConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig

JOB = Job(name="test", end=EndConfig(rounds=3))
NONCE = bytes(NONCE_BYTES)


@cache
def record(seed: int) -> bytes:
    keys = NodeKeys.from_seed(b"%d" % seed)
    address = Address(f"/ip4/127.0.0.1/tcp/{4000 + seed}/p2p/{keys.peer_id}")
    said = NodeRecord(
        ml_dsa_public_key=keys.ml_dsa_public_key,
        ml_kem_public_key=keys.ml_kem_public_key,
        peer_id=keys.peer_id,
        addresses=(address,),
        role=Role.CLOUD,
        capabilities=(),
        sequence=1,
        issued_ns=10**18,
        expiry_ns=10**18 + 10**9,
    )
    return encode_record(sign_record(said, keys))


def four(job: Job = JOB) -> Genesis:
    return create(job, [(f"node-{seed}.record", record(seed)) for seed in range(4)], NONCE)


def touched(change: object, *path: str | int) -> str:
    document = json.loads(four().as_text())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change
    return json.dumps(document)


def test_a_genesis_reads_back_as_what_was_written() -> None:
    genesis = four()
    again = parse("genesis.json", genesis.as_text())
    assert again == genesis
    assert again.chain_id == genesis.chain_id
    assert again.committee.quorum == 3
    assert set(again.public_keys) == set(again.peer_ids) == set(again.contributors)
    assert len(again.bootstrap()) == 4


def test_stakes_are_given_in_the_order_of_the_records() -> None:
    records = [(f"{seed}", record(seed)) for seed in (2, 0, 1)]
    made = create(JOB, records, NONCE, [7, 1, 5])
    stakes = {entry.peer_id: entry.stake for entry in made.body.validators}
    names = [NodeKeys.from_seed(b"%d" % seed).peer_id for seed in (2, 0, 1)]
    assert [stakes[name] for name in names] == [7, 1, 5]
    assert {entry.stake for entry in create(JOB, records, NONCE).body.validators} == {1}


def with_trainers(*seeds: int, job: Job = JOB) -> Genesis:
    """Four validators, and these that only train."""
    voting = [(f"{seed}", record(seed)) for seed in range(4)]
    return create(job, voting, NONCE, trainers=[(f"{seed}", record(seed)) for seed in seeds])


def test_trainers_have_keys_and_places_and_contribute_and_no_vote() -> None:
    made = parse("genesis.json", with_trainers(5, 4).as_text())
    assert made == with_trainers(4, 5)
    assert made.chain_id != four().chain_id
    assert (made.committee, len(made.trainers)) == (four().committee, 2)
    everybody = {*made.committee.stake_of, *made.trainers}
    assert {*made.contributors} == {*made.public_keys} == {*made.peer_ids} == everybody
    assert list(made.contributors) == sorted(everybody)
    assert len(made.addresses) == len(made.signed_records) == 6
    assert made.validators().now.trainers == made.trainers
    assert not four().trainers


def test_trainers_that_do_not_fit_are_refused_and_named() -> None:
    with pytest.raises(UserError, match=r"3: the same node as 3"):
        with_trainers(3)
    document = json.loads(with_trainers(4, 5).as_text())
    (first, second), body = document["body"]["trainers"], document["body"]
    voting = body["validators"][0]
    for trainers, said in (
        ([second, first], "trainers are distinct and sorted"),
        ([first], "contributors are validators or trainers"),
        ([first, {**second, "peer_id": first["peer_id"]}], "share a peer_id"),
        ([first, {**second, "node_id": "ff" * 32}], "does not follow from its key"),
        ([first, {**second, "stake": 3}], "Extra inputs"),
        ([{k: v for k, v in voting.items() if k != "stake"}], "no trainer besides"),
    ):
        changed = {**document, "body": {**body, "trainers": trainers}}
        with pytest.raises(UserError, match=said):
            parse("genesis.json", json.dumps(changed))
    silent = [entry["node_id"] for entry in body["validators"]]
    with pytest.raises(UserError, match="every trainer is a contributor"):
        parse("g", json.dumps({**document, "body": {**body, "contributors": silent}}))


def test_a_genesis_whose_trainers_could_never_count_is_refused() -> None:
    """One member and one trainer: whose update is bad, if they differ, nobody can tell."""
    alone = [("0", record(0))]
    with pytest.raises(UserError, match="m=2.*f_agg=1"):
        create(JOB, alone, NONCE, trainers=[("4", record(4))])
    create(JOB, alone, NONCE, trainers=[("4", record(4)), ("5", record(5))])
    mean = JOB.model_copy(update={"updates": UpdatesConfig(rule="mean")})
    create(mean, alone, NONCE, trainers=[("4", record(4))])
    with pytest.raises(UserError, match="m=4.*f_agg=2"):  # its members alone cannot be merged
        with_trainers(4, 5, job=JOB.model_copy(update={"updates": UpdatesConfig(f_agg=2)}))


def test_a_genesis_of_an_earlier_program_keeps_its_chain_id() -> None:
    # A new setting gives every old network another name: change the schema version with it.
    golden = Path(__file__).parents[1] / "golden" / "genesis.json"
    assert parse("genesis.json", golden.read_text()).committee.quorum == 3


def test_the_chain_id_names_the_job_and_the_validators_and_nothing_else() -> None:
    ids = {
        four().chain_id,
        four(JOB.model_copy(update={"seed": 1})).chain_id,
        four(JOB.model_copy(update={"inner": InnerConfig(lr=1e-3)})).chain_id,
        four(JOB.model_copy(update={"rounds": RoundsConfig(window_ms=9_999)})).chain_id,
        create(JOB, [("a", record(0)), ("b", record(1)), ("c", record(2))], NONCE).chain_id,
    }
    assert len(ids) == 5
    shuffled = create(JOB, [(f"{seed}", record(seed)) for seed in (3, 1, 0, 2)], NONCE)
    assert shuffled.chain_id == four().chain_id
    without_records = Genesis(four().body, ())
    assert without_records.chain_id == four().chain_id


def test_the_same_job_and_records_begun_anew_are_another_chain() -> None:
    records = [(f"{seed}", record(seed)) for seed in range(4)]
    assert create(JOB, records, b"1" * NONCE_BYTES).chain_id != create(JOB, records, NONCE).chain_id


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (touched(4, "body", "job", "seed"), "was changed after it was made"),
        (touched("ab" * 32, "chain_id"), "was changed after it was made"),
        (touched("ab" * 32, "body", "validators", 0, "node_id"), "sorted by node_id|follow"),
        (
            touched(99, "schema_version"),
            "schema version 99, this program reads 6: update this program",
        ),
        (touched(1, "schema_version"), "this program reads 6: use an older program"),
        (touched([], "body", "contributors"), "contributors"),
        (touched(["00" * 32], "body", "contributors"), "contributors are validators or trainers"),
        (touched(["zz"], "records"), "records: "),
        (touched([record(7).hex()], "records"), "fits nobody of the body"),
        (touched([], "records"), "lacks the record of"),
        (touched([record(0).hex()] * 4, "records"), "two records of node"),
        (touched([record(0)[:-1].hex() + "00"], "records"), "not valid"),
        ('{"body": ' + "9" * 5_000 + "}", "a number in it is too long"),
        (touched("free", "body", "job", "updates", "rule"), "job.updates.rule"),
        ("{\n", "genesis.json:2:1: error: this is not JSON"),
        ("[]", "is no genesis file"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "is no genesis file"),
    ],
)
def test_a_touched_or_foreign_file_is_refused_and_says_why(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse("genesis.json", text)


def test_a_record_that_is_damaged_or_given_twice_is_named() -> None:
    damaged = bytearray(record(1))
    damaged[100] ^= 1
    with pytest.raises(UserError, match=r"b\.record: this is not a valid node record"):
        create(JOB, [("a.record", record(0)), ("b.record", bytes(damaged))], NONCE)
    with pytest.raises(UserError, match=r"c\.record: the same node as a\.record"):
        create(JOB, [("a.record", record(0)), ("c.record", record(0))], NONCE)


def test_a_rule_that_its_contributors_cannot_carry_is_refused_with_both_numbers() -> None:
    job = JOB.model_copy(update={"updates": UpdatesConfig(rule="trimmed_mean", f_agg=2)})
    with pytest.raises(UserError, match="m=4.*f_agg=2"):
        four(job)


def test_trainers_that_could_never_count_are_refused_with_what_to_do() -> None:
    voting, training = [("a", record(0))], [("b", record(1)), ("c", record(2))]
    with pytest.raises(UserError, match="m=2.*f_agg=1.*list more of them, or set updates.rule"):
        create(JOB, voting, NONCE, trainers=training[:1])
    assert len(create(JOB, voting, NONCE, trainers=training).contributors) == 3
    mean = JOB.model_copy(update={"updates": UpdatesConfig(rule="mean")})
    assert len(create(mean, voting, NONCE, trainers=training[:1]).contributors) == 2


@pytest.mark.parametrize("is_named", [False, True])
def test_files_that_no_digest_names_make_no_network(is_named: bool) -> None:
    labels = {"path": "labels", "digest": "cd" * 32 if is_named else None}
    data = {"kind": "idx", "path": "pictures", "digest": "ab" * 32, "labels": labels}
    job = JOB.model_copy(
        update={"data": DataConfig.model_validate(data), "model": ModelConfig(kind="mlp")}
    )
    if is_named:
        assert four(job).job.data.labels is not None
        return
    with pytest.raises(UserError, match=r"job.data: labels: no digest, .*genesis digest FILE"):
        four(job)


def test_a_job_without_an_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="set at least one"):
        EndConfig()


def test_steps_convict_where_canonical_kernels_take_them_and_nowhere_else() -> None:
    tensors = [{"name": "w", "shape": [2]}]
    module = ModelConfig.model_validate(
        {
            "kind": "module",
            "path": "own_package:build",
            "built": {"source_digest": "ab" * 32, "tensors": tensors},
        }
    )
    assert check_rules_of(JOB).steps_convict
    assert not check_rules_of(JOB.model_copy(update={"model": module})).steps_convict
