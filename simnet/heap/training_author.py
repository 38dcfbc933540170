"""A node's own way through a round: enter it, train, seal, offer; by the daemon's own decisions."""

from functools import partial
from math import isinf

from daa_consensus.bft.messages import OfferBody
from daa_node.autonomy.reason import Action
from daa_node.seams import TrainOrder
from simnet.heap.training_member import Attempt, Circumstances, Member, conduct_of
from simnet.heap.training_world import TrainingWorld
from simnet.links import NS
from simnet.training.tally import Stage


class Authors:
    """All nodes, as those who contribute."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world

    def enter(self, member: Member, wait_ns: int) -> None:
        """A node that stands at the newest height takes part from then on."""
        member.idle(Stage.WAITING, self._world.now_ns)
        member.life += 1
        member.attempt = None
        member.is_astray = False
        self._world.agenda.after(wait_ns, partial(self._enter, member, member.life))

    def _enter(self, member: Member, life: int) -> None:
        world = self._world
        if member.life != life or not member.is_able:
            return
        if member.disk_lost or member.height < world.newest.height:
            world.parts.transfers.catch_up(member)
            return
        age_ms = world.round_age_ms(member)
        conduct = conduct_of(member, self._circumstances(member, age_ms))
        if conduct.action is Action.WAIT:
            member.go_astray()
            return
        attempt = Attempt(world.now_ns, age_ms, conduct, member.meters.us_per_step.value)
        member.attempt = attempt
        if member.node in world.open.offers:  # before a crash: the signer would refuse another one
            world.parts.closing.own_ready(member, attempt)
        elif world.open.decided_ns is None and conduct.action is Action.TRAIN:
            self._train(member, attempt)
        else:
            attempt.makes_none = True
        world.parts.closing.entered(member, attempt)
        world.parts.execution.try_execute(member)

    def _train(self, member: Member, attempt: Attempt) -> None:
        world, conduct = self._world, attempt.conduct
        step_ns = world.speeds.step_ns(member.node, world.open.plan.round, world.now_ns)
        steps = conduct.steps
        if not isinf(conduct.stop_after_s):
            steps = min(steps, max(1, int(conduct.stop_after_s * NS) // step_ns))
        attempt.step_ns, attempt.steps, attempt.started_ns = step_ns, steps, world.now_ns
        world.begin(member, Stage.TRAINING, steps * step_ns, partial(self._trained, member))

    def _trained(self, member: Member) -> None:
        world, attempt = self._world, member.attempt
        assert attempt is not None, "whoever trains is in the round"
        attempt.trained_ns = world.now_ns - attempt.started_ns
        world.begin(member, Stage.SEALING, world.work_ns, partial(self._sealed, member))

    def _sealed(self, member: Member) -> None:
        world, attempt = self._world, member.attempt
        assert attempt is not None, "whoever seals is in the round"
        offer = self._offer(member, attempt)
        world.open.offers[member.node] = offer
        member.account.steps += offer.steps
        member.meters.us_per_step.add(float(offer.us_per_step))
        world.trace.note(
            world.now_ns, "offer", node=member.node, steps=offer.steps, codec=offer.codec
        )
        world.parts.closing.own_ready(member, attempt)
        world.parts.transfers.offered(member, offer.size_bytes)

    def _offer(self, member: Member, attempt: Attempt) -> OfferBody:
        """Trained for real, where there is a model, by as many steps as there was time for."""
        world, plan = self._world, self._world.open.plan
        order = TrainOrder(
            base=world.payload.state,
            seed=plan.seed,
            round=plan.round,
            author=member.node_id,
            steps_max=attempt.steps,
            stop_after_s=float("inf"),
            codec=attempt.conduct.codec,
            first_step=world.newest.height * world.rounds.inner_steps_max,
            merged_round=member.merged_round,
        )
        trained = world.payload.train(member.node, order)
        return OfferBody(
            round=plan.round,
            author=member.node_id,
            base_vertex_id=plan.base,
            blob_root=trained.blob_root,
            size_bytes=world.payload.sizes.update_bytes[order.codec],
            codec=order.codec,
            steps=attempt.steps,
            tokens=attempt.steps * plan.tokens_per_step,
            us_per_step=max(1, attempt.step_ns // 1000),
            upload_bytes_per_s=int(member.meters.upload_bytes_per_s.value or 0),
            base_loss_micronats=max(0, round((world.loss_nats or 0.0) * 1e6)),
            snapshot_roots=(),
        )

    def _circumstances(self, member: Member, round_age_ms: int) -> Circumstances:
        world, committee = self._world, self._world.votes.committee
        return Circumstances(
            plan=world.open.plan,
            window_s=world.rounds.window_ms / 1000,
            codec=world.payload.codec,
            update_bytes=world.payload.sizes.update_bytes,
            reachable_weight=world.reach.weight(member.node),
            quorum_weight=committee.quorum,
            total_weight=committee.total,
            receivers=len(world.members) - 1,
            adaptive=world.scenario.work.adaptive,
            round_age_ms=round_age_ms,
        )
