"""Check every file of a chain, trusting nothing but the genesis and its validator set.

    certified    headers, results and their proofs (see certified)
    states       each manifest and chunk by itself
    snapshots    whole, and of a vertex
    replay       genesis weights, or the snapshot that a pruned chain starts with, to every root
    leftovers    what nothing refers to does not belong
    going        files that a write under way takes out, each by itself
    packs        no byte but whole records, each once, and an index of them

Every byte of every file is covered by a digest or a signature that leads back to the genesis, so
one changed byte is always named. Needs no torch and no network; holds one state, 8 bytes a
parameter.

Files that a publishing note names may lie there unreferenced, but whole. A final result whose
vertex is not here is a problem unless that note names it: headers come with their vertices or not
at all.

A chain proves itself only against keys of its own past: whoever holds those of a former committee
can sign another one (weak subjectivity). An `Anchor` is a vertex that the operator has from
somebody whom he trusts; a chain without it is refused.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from daa_node.checkpoints.certified import Certified, certified_chain
from daa_node.checkpoints.chain_index import ChainIndex
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.files import ChainFiles, ChainReader
from daa_node.checkpoints.going import Going
from daa_node.checkpoints.layout import CERTIFICATES, exec_name
from daa_node.checkpoints.verify_report import Anchor, Report
from daa_node.checkpoints.verify_states import StateJudge, add_vertex
from daa_node.checkpoints.verify_windows import Count, verify_in_windows

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all


def verify_chain(
    directory: Path,
    facts: ChainFacts,
    on_progress: Progress = lambda done, total: None,
    anchor: Anchor | None = None,
) -> Report:
    """Check the chain in `directory`, a node's chain/. Blocking; takes no lock.

    In memory that does not grow with the chain, but for what windows cannot judge (see there).
    """
    size_bytes = bytes_read = 0

    def tell_total(all_bytes: int) -> None:
        nonlocal size_bytes, bytes_read
        size_bytes, bytes_read = all_bytes, 0

    def count(more_bytes: int) -> None:
        nonlocal bytes_read
        bytes_read += more_bytes
        # a running daemon may add to what there was
        on_progress(min(bytes_read, size_bytes), size_bytes)

    report = verify_in_windows(directory, facts, anchor, count, tell_total)
    if report is None:
        report = verify_in_memory(directory, facts, anchor, count, tell_total)
    report.bytes_read = bytes_read
    return report


def verify_in_memory(
    directory: Path, facts: ChainFacts, anchor: Anchor | None, on_bytes: Count, on_total: Count
) -> Report:
    """As `verify_in_windows`, of any chain."""
    listing = ChainFiles(directory).listing()
    on_total(sum(listing.sizes.values()) + listing.shelf.size_bytes)
    files = ChainFiles(directory, on_bytes)
    report = verify_files(files, facts, anchor)
    listing = files.listing()  # what a running daemon packed meanwhile was read as well
    report.unfinished += len(listing.twice) + len(listing.shelf.superseded)
    report.problems += files.pack_problems(listing)
    report.settle()
    return report


def verify_files(files: ChainReader, facts: ChainFacts, anchor: Anchor | None = None) -> Report:
    """Check the chain that these files are. Blocking; takes no lock."""
    certified = certified_chain(files, facts)
    report = verify_certified(certified, facts, anchor)
    going = Going(files, facts, certified.contents.validators)
    going.judge(certified.listing.leaving)
    report.unfinished += going.count
    report.problems += going.problems
    report.settle()
    return report


def verify_certified(
    certified: Certified, facts: ChainFacts, anchor: Anchor | None = None
) -> Report:
    """As `verify_files`, once its headers and proofs are judged."""
    chain, problems = certified.chain, certified.problems
    proofs = {f"{CERTIFICATES}/{exec_name(vertex.vertex_id)}" for vertex in certified.placed}
    report = Report(
        facts.chain_id,
        heights=chain[-1].height,
        tip=chain[-1].vertex_id,
        vertices=len(chain),
        certificates=len(certified.contents.execs) + len(certified.contents.finals),
        light=len(proofs & certified.light.keys()),
        problems=problems,
    )
    if certified.promised:
        report.promised = (certified.final_height, certified.promised[-1].result.vertex_id)
    with closing(ChainIndex(None)) as index:
        for place, vertex in enumerate((chain[0], *certified.placed)):
            add_vertex(index, certified.listing, vertex, place < len(chain))
        index.names.use_all(certified.used)
        StateJudge(certified.files, facts, certified.listing, index, report).run(anchor)
    report.settle()
    return report
