"""Commands that need no running daemon: init, id, genesis create and show, config show."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from daa_dag.chunking import cut, manifest_of
from daa_node import config as node_config
from daa_node import config_file, genesis
from daa_node.adapters.asked_process import probe_module
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.checkpoints.weights_file import read_weights
from daa_node.cli import identity, report
from daa_node.cli.data_directory import DataDirectory, read_text, write_durably
from daa_node.cli.genesis_notes import notes_on
from daa_node.cli.own_dataset import with_dataset_digest
from daa_node.errors import StorageFailed, UserError
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.network.config import HOST_KINDS, NetworkConfig
from daa_node.seams import Address
from daa_node.tensors import grid_sizes_bytes
from daa_node.training.base_files import digests_of
from daa_node.training.config import TrainingJob
from daa_node.training.data_places import DataPlaces
from daa_node.training.datasets.catalogue import look_over
from daa_node.training.datasets.files import digest_of_content
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_config import check_allowed
from daa_node.updates.compression.codec import sizes_of

ADDRESS_BEGINS = tuple(f"/{kind}/" for kind in HOST_KINDS)
GENESIS_ENDS = (".json",)  # what is called so, and is not there, is a file misspelt


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of `init` say. `join`: a genesis file, or an address; `chain`: its id."""

    role: str = Role.CLOUD
    port: int | None = None
    join: str | None = None
    chain: str | None = None


def init(root: Path, wanted: Wanted, as_json: bool) -> None:
    if wanted.role not in (Role.CLOUD, Role.EDGE):
        raise UserError(f"--role {wanted.role}: cloud or edge")
    if wanted.chain is not None and wanted.join is None:
        raise UserError("--chain says which network --join is of: give both, or neither")
    DataDirectory(root).check_free()
    keys = NodeKeys.generate()
    made = _network_to_join(wanted, keys)
    text = None if made is None else made.as_text()
    bootstrap = [wanted.join] if wanted.join is not None and _is_address(wanted.join) else []
    identity.create_node(root, settings_of(Role(wanted.role), wanted.port, bootstrap), keys, text)
    if as_json:
        answer = {
            "dir": str(root.resolve()),
            "node_id": keys.node_id.hex(),
            "peer_id": keys.peer_id,
            "role": wanted.role,
        }
        if made is not None:
            answer |= {"network": made.job.name, "chain_id": made.chain_id.hex()}
        report.put_json(answer)
        return
    report.put(f"made a node in {root}, role {wanted.role}")
    report.put(f"  node id  {keys.node_id.hex()}")
    report.put(f"  peer id  {keys.peer_id}")
    report.put(f"  keys     {root / 'keys'}  (back them up: a lost key is a lost identity)")
    report.put(f"  settings {root / 'config.yaml'}")
    named, record = shlex.quote(str(root)), shlex.quote(f"{root.resolve().name}.record")
    if made is None:
        report.put(f"Next: daa-node id --record --dir {named} > {record}")
    else:
        _say_how_to_join(made, named)


def _network_to_join(wanted: Wanted, keys: NodeKeys) -> genesis.Genesis | None:
    """Raises UserError."""
    if wanted.join is None:
        return None
    from daa_node.cli import joining  # libp2p takes a second to import

    chain_id = None if wanted.chain is None else joining.chain_id_of(wanted.chain)
    path = Path(wanted.join)
    if _is_address(wanted.join):
        address = _address_in(wanted.join)
        if chain_id is None:
            no_file = "" if wanted.join.startswith("/") else " (there is no such file)"
            raise UserError(
                f"--join {wanted.join}{no_file} needs --chain ID: an address may be anybody's, the "
                "chain id names the network. `daa-node id` shows it on a host of the network"
            )
        return joining.fetch(address, chain_id, keys)
    if not os.path.exists(path):
        raise UserError(
            f"--join {wanted.join}: there is no such file, and an address is like "
            "node.example:4001 or 192.0.2.7:4001"
        )
    made = read_genesis(path)
    if chain_id not in (None, made.chain_id):
        raise UserError(
            f"{path} is of the network with chain id {made.chain_id.hex()}, and --chain is "
            f"{wanted.chain}: ask for the genesis of that network"
        )
    return made


def _is_address(text: str) -> bool:
    """A host's name may look like a file's: a file that is there is meant."""
    if text.startswith(ADDRESS_BEGINS):
        return True
    is_path = "/" in text.partition("/p2p/")[0].removeprefix("ws://") or text.endswith(GENESIS_ENDS)
    return not (is_path or os.path.exists(text))  # False for a name that no file can have


def _address_in(text: str) -> Address:
    """The multiaddr that it stands for. Raises UserError."""
    try:
        return Address(NetworkConfig(bootstrap=(text,)).bootstrap[0])
    except ValidationError as invalid:
        words = invalid.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"--join: {words}") from None


def settings_of(
    role: Role, port: int | None = None, bootstrap: Sequence[str] = (), enrolls: bool = False
) -> str:
    """What config.yaml begins with."""
    network = []
    if port is not None:
        network.append(f"  listen: [/ip4/0.0.0.0/tcp/{port}]")
    if bootstrap:
        network.append(f"  bootstrap: {json.dumps(list(bootstrap))}  # {identity.BOOTSTRAP_WHY}")
    settings = identity.role_settings(role).rstrip()
    if enrolls:
        settings += f"\nenroll: true  # {identity.ENROLLS_WHY}"
    return "\n".join([settings, "network:", *network]) if network else settings


def _say_how_to_join(made: genesis.Genesis, named: str) -> None:
    rounds = made.job.agreement.epoch_rounds
    report.put(f"  network  {made.job.name}, chain {made.chain_id.hex()}")
    report.put("Next, start the node. It follows the network, and does not train yet:")
    report.put(f"  daa-node run --dir {named}")
    report.put("In another terminal, ask to become a validator. This prints the request's id:")
    report.put(f"  daa-node validators propose join --dir {named}")
    report.put("Send that id to the people who run the validators. Each of them runs:")
    report.put("  daa-node validators approve ID")
    report.put(
        f"The node votes and trains {rounds} rounds later at most, once validators that weigh a "
        "quorum have approved."
    )


def show_id(root: Path, record: bool, as_json: bool) -> None:
    node = identity.open_node(root)
    signed = identity.make_record(node) if record else None
    if signed is not None and not as_json:
        report.put(identity.record_as_text(signed))
        return
    known = node.directory.genesis
    made = read_genesis(known) if known.exists() else None
    addresses = _addresses(node)
    if as_json:
        answer: dict[str, object] = {
            "node_id": node.keys.node_id.hex(),
            "peer_id": node.keys.peer_id,
            "addresses": addresses,
        }
        if made is not None:
            answer |= {"network": made.job.name, "chain_id": made.chain_id.hex()}
        if signed is not None:
            answer["record"] = identity.record_as_text(signed)
        report.put_json(answer)
        return
    report.put(f"node id  {node.keys.node_id.hex()}")
    report.put(f"peer id  {node.keys.peer_id}")
    for address in addresses:
        report.put(f"address  {address}")
    if made is None:
        return
    report.put(f"network  {made.job.name}, chain {made.chain_id.hex()}")
    if addresses:
        report.put("While this node runs, another host joins its network with")
        report.put(f"  daa-node init --join {addresses[0]} --chain {made.chain_id.hex()}")


def _addresses(node: identity.LocalNode) -> list[Address]:
    """None where the port is whichever is free, which is known once the node runs."""
    try:
        return list(identity.addresses_of(node.config.value, node.keys.peer_id))
    except UserError:
        return []


NamedRecord = tuple[str, bytes]  # its file, and what it holds


@dataclass(frozen=True, slots=True)
class Records:
    """Whose network it becomes: files of `daa-node id --record`."""

    validators: Sequence[Path]
    trainers: Sequence[Path] = ()


def create_genesis(
    job_path: Path,
    records: Records,
    out: Path,
    root: Path,
    weights: Path | None,
    as_json: bool,
) -> None:
    """`root`: the node whose settings say whether, and where, the job's own model may be built.

    `weights`: a file of the first weights.
    """
    check_new(out)
    text = read_text(job_path, "job", "see configs/demo.yaml for one")
    job = pinned(config_file.load(str(job_path), text, genesis.Job).value, job_path)
    if job.model.built is not None or job.model.weights_root is not None:
        raise UserError("model.built and model.weights_root are what this command finds out")
    job = with_dataset_digest(job, DataDirectory(root))
    if not job.model.is_canonical:
        job = _with_built_model(job, job_path, DataDirectory(root))
    begin_network(job, records, out, root, weights, as_json)


def check_new(out: Path) -> None:
    """Raises UserError if there is a genesis already, or no directory for one."""
    if os.path.lexists(out):
        raise UserError(f"{out} exists: a genesis is never overwritten; choose another --out")
    if not out.parent.is_dir():
        raise UserError(f"{out}: {out.parent} is no directory: make it, or choose another --out")


def read_records(records: Records) -> tuple[list[NamedRecord], list[NamedRecord]]:
    """Of validators and of trainers. Raises UserError."""
    return (
        [(str(path), identity.record_from_file(path)) for path in records.validators],
        [(str(path), identity.record_from_file(path)) for path in records.trainers],
    )


def begin_network(
    job: genesis.Job,
    records: Records,
    out: Path,
    root: Path,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Of a job that is whole but for its first weights. Raises UserError."""
    if weights is not None:
        job = _with_weights(job, weights)
    voting, training = read_records(records)
    nonce = SystemEntropy().bytes(genesis.NONCE_BYTES)
    made = genesis.create(job, voting, nonce, trainers=training)
    write_genesis(out, made)
    if as_json:
        report.put_json({"file": str(out.resolve()), "chain_id": made.chain_id.hex()})
        return
    report.put(f"wrote {out}: chain {made.chain_id.hex()}")
    if job.model.built is not None and job.model.built.frozen is not None:
        report.put(f"it trains {_share_trained(job)}")
    for note in notes_on(made):
        report.note(note)
    report.put("Next: copy it to every node's directory as D/genesis.json, then daa-node run")
    if weights is not None:
        report.put(
            f"One host at least needs {weights} as D/{DataDirectory(root).weights.name}; the "
            "others get the weights from it, or have the file themselves"
        )


def pinned(job: genesis.Job, job_path: Path) -> genesis.Job:
    """The job with the digest of each file that it names by path alone. Raises UserError.

    A relative path starts where the job's file lies.
    """
    update = {}
    for setting, file in job.data.files().items():
        if file.digest is not None or file.path is None:
            continue
        path = job_path.parent / file.path
        try:
            update[setting] = digest_of_content(path)
        except OSError as fault:
            raise UserError(
                f"{job_path}: data: cannot read {path} ({fault.strerror}), and the digest of it is "
                "not given: hosts could not tell whether all of them have the same. Put it there, "
                "or set the digest that `daa-node genesis digest FILE` prints where it lies"
            ) from None
    data = job.data.pinned(update)
    if update and update.keys() == data.files().keys():  # all of them lie here
        look_over(data.placed(DataPlaces(), job_path.parent), job.model)
    return job.model_copy(update={"data": data})


def show_digest(path: Path, as_json: bool) -> None:
    try:
        digest = digest_of_content(path)
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    if as_json:
        report.put_json({"file": str(path.resolve()), "digest": digest})
    else:
        report.put(digest)


def _with_built_model(job: genesis.Job, job_path: Path, directory: DataDirectory) -> genesis.Job:
    """The job with what its model is when it is built. Raises UserError."""
    directory.check()
    config = identity.open_config(directory).value
    trainer = identity.trainer_settings(config, directory)
    if job.model.path is not None:
        check_allowed(job.model.path, trainer.allow_modules)
    # as data do, a base lies beside the job's file, unless this host's settings say where
    root = job_path.parent if config.model.base is None else directory.root
    here = job.model.placed(config.model, root.resolve())
    if here.base is not None and here.base.files is None:
        assert here.base.path is not None, "BaseFolder has one of them"
        files = digests_of(here.base.path)
        here, job = here.pinned(files), job.model_copy(update={"model": job.model.pinned(files)})
    training = TrainingJob(model=here, data=job.data, seed=job.seed)
    built = probe_module(training, trainer, job.spot_checks.is_on)
    return _with_model(job, built=built)


def _with_weights(job: genesis.Job, path: Path) -> genesis.Job:
    """The job that begins with those of the file. Raises UserError."""
    specs = job.model.tensors()
    weights_D = read_weights(path, specs)
    root = manifest_of(weights_D.data, cut(grid_sizes_bytes(specs))).root
    return _with_model(job, weights_root=root.hex())


def _with_model(job: genesis.Job, **found: object) -> genesis.Job:
    try:
        model = ModelConfig.model_validate({**job.model.model_dump(), **found})
    except ValidationError as invalid:
        raise UserError(f"the job's model: {genesis.words_of(invalid)}") from None
    return job.model_copy(update={"model": model})


def write_genesis(path: Path, made: genesis.Genesis) -> None:
    """The whole of it or nothing. Raises StorageFailed."""
    try:
        write_durably(path, made.as_text().encode())
    except OSError as failure:
        raise StorageFailed(f"cannot write {path}: {failure.strerror}") from failure


def read_genesis(path: Path) -> genesis.Genesis:
    text = read_text(
        path, "genesis", "copy the one of your network there, or make one: daa-node genesis create"
    )
    return genesis.parse(str(path), text)


def show_genesis(path: Path, as_json: bool) -> None:
    made = read_genesis(path)
    body = made.body.model_dump(mode="json")
    if as_json:
        report.put_json(
            {
                "chain_id": made.chain_id.hex(),
                "quorum": made.committee.quorum,
                "parameters": made.job.model.parameter_count(),
                "bootstrap": made.bootstrap(),
                **body,
            }
        )
        return
    report.put(f"chain      {made.chain_id.hex()}")
    report.put(f"name       {made.job.name}")
    count, quorum = len(made.body.validators), made.committee.quorum
    report.put(f"validators {count}, a quorum weighs {quorum} of {made.committee.total}")
    for entry in made.body.validators:
        report.put(f"  {entry.node_id}  stake {entry.stake}  {entry.peer_id}")
    if made.body.trainers:
        report.put(f"trainers   {len(made.body.trainers)}, which contribute and do not vote")
    for trainer in made.body.trainers:
        report.put(f"  {trainer.node_id}  {trainer.peer_id}")
    for address in made.bootstrap():
        report.put(f"  {address}")
    _say_what_is_built(made.job, body["job"]["model"])
    for section, values in body["job"].items():
        if isinstance(values, dict):
            said = ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
            report.put(f"{section:<10} {said}")
    report.put(f"parameters {made.job.model.parameter_count()}")


def _say_what_is_built(job: genesis.Job, shown: dict[str, Any]) -> None:
    """And takes it out of what is shown of the model."""
    built = shown.pop("built", None)
    if built is None:
        return
    tensors = f"{len(built['tensors'])} tensors"
    if "source_digest" in built:
        report.put(f"source     blake3 {built['source_digest']}, {tensors}")
    else:
        report.put(f"source     transformers {built['release']}, {tensors}")
    for name, digest in (shown.get("base") or {}).pop("files", {}).items():
        report.put(f"base       {name} blake3 {digest}")
    if "frozen" in built:
        report.put(f"trainable  {_share_trained(job)}")


def _share_trained(job: genesis.Job) -> str:
    """What the network saves by what it does not train."""
    built, codec = job.model.built, job.updates.codec
    assert built is not None
    assert built.frozen is not None
    trained = job.model.parameter_count()
    whole = trained + built.frozen
    update, all_ = (sizes_of([codec], count)[codec] for count in (trained, whole))
    return (
        f"{trained} of {whole} numbers: an update of codec {codec} has {report.size(update)}, of "
        f"all of them it would have {report.size(all_)}"
    )


def show_config(root: Path, path: Path | None, origin: bool, as_json: bool) -> None:
    directory = DataDirectory(root)
    if path is None:
        directory.check()
    loaded = identity.open_config(directory, path)
    rows = list(node_config.values(loaded.value))
    if as_json:
        answer: dict[str, object] = {"config": loaded.value.model_dump(mode="json")}
        if origin:
            answer["origins"] = {".".join(keys): loaded.origin_of(keys) for keys, _ in rows}
        report.put_json(answer)
        return
    lines = [f"{'.'.join(keys)}: {json.dumps(value)}" for keys, value in rows]
    width = max(map(len, lines))
    for line, (keys, _) in zip(lines, rows, strict=True):
        report.put(f"{line:<{width}}  # {loaded.origin_of(keys)}" if origin else line)
