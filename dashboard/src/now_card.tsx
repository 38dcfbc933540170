/** The first thing to see: what happens now, why, and four figures. */

import type { Now } from "./now";
import { waitedFor } from "./now";
import { underWay, type State } from "./state";
import { bytes, nats, NOTHING, seconds, short } from "./words";

export function NowCard({ state, now }: { state: State; now: Now }) {
  return (
    <section class="card now" data-tone={now.tone} aria-labelledby="now-title">
      <p class="phase">{now.chip}</p>
      <h2 id="now-title">{now.now}</h2>
      <p class="why">{now.why}</p>
      <Awaited state={state} />
      <Figures state={state} />
      <Decisions state={state} />
    </section>
  );
}

/** Whose contribution is there, and whose is not: told apart by their form, too. */
function Awaited({ state }: { state: State }) {
  const walk = underWay(state), me = state.status?.node_id;
  if (walk === null || walk.setS !== null || me === undefined) return null;
  const waited = waitedFor(state, walk);
  const all = [...walk.acknowledged.map((id) => [id, true] as const),
    ...waited.map((id) => [id, false] as const)].sort(([a], [b]) => (a < b ? -1 : 1));
  if (all.length === 0) return null;
  return (
    <ul class="awaited" aria-label="Contributions to this round">
      {all.map(([id, isThere]) => (
        <li key={id} class={`mark ${isThere ? "good" : "waits"}`} title={id}>
          {id === me ? "this node" : <code>{short(id)}</code>}
          <span class="unseen">{isThere ? " acknowledged" : " still to come"}</span>
        </li>
      ))}
    </ul>
  );
}

function Figures({ state: { status, rounds } }: { state: State }) {
  const last = rounds.at(-1);
  const figures: readonly (readonly [string, string, string])[] = [
    ["Height", status === null ? NOTHING : String(status.height), "certified checkpoints"],
    ["Loss", nats(status?.loss_nats ?? null), status?.never_trains === true
      ? "this node never trains, nor measures" : "held-out, nats a token"],
    ["Last round", last !== undefined && last.wall_s > 0 ? seconds(last.wall_s) : NOTHING,
      last === undefined ? "none yet" : `${bytes(last.bytes_sent)} sent`],
    ["Validators",
      status === null ? NOTHING : `${status.validators.reachable} of ${status.validators.total}`,
      "within reach"],
  ];
  return (
    <dl class="tiles">
      {figures.map(([name, value, of]) => (
        <div key={name}><dt>{name}</dt><dd>{value}<small>{of}</small></dd></div>
      ))}
    </dl>
  );
}

function Decisions({ state: { status } }: { state: State }) {
  if (status === null || status.decisions.length === 0) return null;
  return (
    <div class="decisions">
      <h3>What it decided, and why</h3>
      <dl>
        {status.decisions.map(({ decision, reason }) => (
          <div key={decision}><dt>{decision}</dt><dd>{reason}</dd></div>
        ))}
      </dl>
    </div>
  );
}
