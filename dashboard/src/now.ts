/** What happens now, and why: one sentence of each, from the newest that the page has heard. */

import { isMember, textIn, type Status } from "./facts";
import { underWay, type State } from "./state";
import { stepsOf, type Walk } from "./walks";
import { count, seconds, sentence } from "./words";

export type Tone = "calm" | "busy" | "good" | "bad";

export interface Now {
  readonly tone: Tone;
  readonly chip: string;
  readonly now: string;
  readonly why: string;
}

const BEFORE_ROUNDS: Readonly<Record<string, readonly [now: string, why: string]>> = {
  starting: ["Starting", "The first state of the model is being made or fetched."],
  restoring: ["Restoring the newest state", "It is read from this node's disk and checked."],
  catching_up: [
    "Catching up with the others",
    "They have certified rounds that this node has not: it follows them first.",
  ],
};

export function nowOf(state: State, nowS: number): Now {
  const { status, link } = state;
  if (status === null || link.at === "away") return unknown(state);
  if (status.done) {
    return {
      tone: "good", chip: "Done", now: "The job is done",
      why: `${sentence(status.ended_because ?? "")} The node goes on serving others.`,
    };
  }
  const drain = status.decisions.find(({ decision }) => decision === "drain");
  if (drain !== undefined) {
    return {
      tone: "calm", chip: "Draining", now: "Finishing the round, then stopping",
      why: "It was asked to stop. Others have its last votes before it does.",
    };
  }
  if (status.paused === true && status.phase === "serving") {
    return {
      tone: "calm", chip: "Paused", now: "Training is paused by its operator",
      why: "It votes, merges and signs as before. Resume lets it train again.",
    };
  }
  const before = BEFORE_ROUNDS[status.phase];
  if (before !== undefined) {
    const [now, otherwise] = before;
    return { tone: "busy", chip: "Getting ready", now, why: becauseOf(status, otherwise) };
  }
  if (status.waiting !== null) {
    return { tone: "bad", chip: "Waiting", now: "Waiting", why: sentence(status.waiting) };
  }
  const walk = underWay(state);
  return walk === null ? betweenRounds(status) : inRound(state, status, walk, nowS);
}

function unknown({ link, events }: State): Now {
  if (link.at === "away") {
    const last = events.at(-1);
    const stopped = last?.name === "node_stopped" ? textIn(last, "reason") : "";
    return {
      tone: "bad", chip: "Not reached", now: "The daemon does not answer",
      why: `${stopped === "" ? "It may have stopped." : `It has stopped: ${sentence(stopped)}`} `
        + "This page asks again by itself; `daa-node status` on its host tells more.",
    };
  }
  return { tone: "calm", chip: "Asking", now: "Asking the node how it stands", why: "" };
}

function betweenRounds(status: Status): Now {
  const trains = status.phase === "training";
  return {
    tone: "busy", chip: trains ? "Training" : "Taking part",
    now: status.phase === "publishing" ? "Publishing the newest checkpoint"
      : `Round ${status.round + 1}`,
    why: becauseOf(status, trains ? "" : "It votes and merges, and does not train in this round."),
  };
}

function inRound(state: State, status: Status, walk: Walk, nowS: number): Now {
  const step = stepsOf(walk, nowS).at(-1);
  const lastsS = step === undefined ? 0 : step.toS - step.fromS;
  const soFar = lastsS < 1 ? "" : ` Waiting for ${seconds(lastsS)} so far.`;
  const waited = waitedFor(state, walk);
  switch (step?.name) {
    case "gather":
      return {
        tone: "busy", chip: "Gathering",
        now: `Round ${walk.round}: waiting for contributions`,
        why: waited.length === 0
          ? `All that are expected are acknowledged: a quorum decides on the set.${soFar}`
          : `${count(walk.acknowledged.length, "contribution")} acknowledged, ${waited.length} `
            + `still to come.${soFar}`,
      };
    case "merge":
      return {
        tone: "busy", chip: "Merging",
        now: `Round ${walk.round}: merging ${count(walk.contributors ?? 0, "contribution")}`,
        why: "A quorum has decided which ones count. Each node merges them by itself, to the "
          + "same bit.",
      };
    case "sign":
      return {
        tone: "busy", chip: "Signing",
        now: `Round ${walk.round}: waiting for a quorum's signatures`,
        why: "This node has its result. The checkpoint counts once a quorum has signed the same "
          + `one.${soFar}`,
      };
    default:
      return {
        tone: "busy", chip: status.phase === "serving" ? "Taking part" : "Training",
        now: `Round ${walk.round}: ${status.phase === "serving" ? "others train" : "training"}`,
        why: becauseOf(status, ""),
      };
  }
}

function becauseOf(status: Status, otherwise: string): string {
  const [first] = status.decisions;
  return first === undefined ? otherwise : sentence(first.reason);
}

/** Contributors within reach whose contribution to this round is not acknowledged yet. */
export function waitedFor({ status, peers }: State, walk: Walk): string[] {
  if (status === null || walk.setS !== null) return [];
  const others = (peers ?? []).filter((peer) => peer.connected && isMember(peer)
    && peer.never_trains !== true);
  const serves = status.phase === "serving" || status.never_trains === true;
  const own = serves ? [] : [status.node_id];
  const expected = [...own, ...others.flatMap(({ node_id }) => node_id ?? [])];
  return expected.filter((node) => !walk.acknowledged.includes(node));
}

/** What a screen reader hears: only when it is of another kind, not with each round. */
export function announcement(state: State, now: Now): string {
  const { link } = state;
  if (link.at === "away") return "The daemon does not answer. Trying again.";
  if (now.tone === "bad" || now.tone === "good") return `${now.now}. ${now.why}`;
  return now.chip === "Asking" ? "" : "The node takes part.";
}
