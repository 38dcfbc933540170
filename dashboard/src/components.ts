/** The parts of this node, how each one is, and what would make it better. */

import { adviceOn, type Advice } from "./advice";
import type { Peer, Status } from "./facts";
import { bytes, count, sentence } from "./words";

export type Condition = "good" | "watch" | "bad";

export interface Component {
  readonly name: string;
  readonly condition: Condition;
  readonly words: string;
  readonly remedy: string; // empty where nothing is to be done
}

export const CONDITION_WORDS: Readonly<Record<Condition, string>> = {
  good: "Fine", watch: "Look at it", bad: "Wrong",
};

export function componentsOf(
  status: Status, peers: readonly Peer[], advice: Advice,
): Component[] {
  return [
    quorum(status), worker(status, advice), reach(status), standing(peers),
    storage(status, advice), records(status, advice), loss(status, advice), copies(status, advice),
  ].filter((component) => component !== null);
}

function quorum({ validators, waiting }: Status): Component {
  const { reachable, total } = validators;
  const words = `${reachable} of ${count(total, "validator")} within reach`;
  if (waiting !== null && reachable < total) {
    return {
      name: "Quorum", condition: "bad", words,
      remedy: "See under Nodes who is gone. Rounds go on by themselves once a quorum is back.",
    };
  }
  return {
    name: "Quorum", condition: reachable < total ? "watch" : "good", words,
    remedy: reachable < total ? "See under Nodes who is gone, and why." : "",
  };
}

function worker({ trainer_pid, done }: Status, advice: Advice): Component {
  if (trainer_pid !== null) {
    return { name: "Worker", condition: "good", words: `process ${trainer_pid}`, remedy: "" };
  }
  return {
    name: "Worker", condition: done ? "good" : "bad",
    words: done ? "not needed any more" : "does not run",
    remedy: done ? "" : adviceOn("trainer_lost", advice),
  };
}

const REACHED: Readonly<Record<string, readonly [Condition, string]>> = {
  direct: ["good", "others can dial this node"],
  relayed: ["watch", "others come through a relay"],
  punched: ["good", "others come through a hole in the router"],
  unreachable: ["watch", "others cannot dial this node"],
  unknown: ["good", "not measured yet"],
};

function reach({ reachability }: Status): Component {
  const [condition, words] = REACHED[reachability.reach] ?? ["watch", reachability.reach];
  const helps = condition === "watch"
    ? " Forward its port in the router, or set network.announce, and it needs no relay." : "";
  return {
    name: "Reachability", condition, words,
    remedy: condition === "good" ? "" : `${sentence(reachability.why)}${helps}`,
  };
}

/** As the others see this node. */
function standing(peers: readonly Peer[]): Component | null {
  const views = peers.flatMap(({ sees_us: view }) => (view === null ? [] : [view]));
  const [worst] = [...views].sort((a, b) => a.score - b.score);
  if (worst === undefined) return null;
  const least = `${worst.level}, ${worst.score.toFixed(2)} of 1`;
  const isLow = worst.level === "low" || worst.level === "excluded";
  return {
    name: "Standing with others", words: least,
    condition: isLow ? "bad" : worst.level === "priority" ? "good" : "watch",
    remedy: worst.level === "priority" ? ""
      : "With the one that sees it worst. Would raise it: "
        + sentence(worst.would_raise ?? "more rounds to be seen in"),
  };
}

function storage(
  { storage: { chain_bytes, work_bytes, bytes_max, level } }: Status, advice: Advice,
): Component {
  const used = bytes(chain_bytes + work_bytes);
  const words = bytes_max === null ? `${used} used` : `${used} of ${bytes(bytes_max)} used`;
  const remedies = {
    room: "",
    near: adviceOn("storage_near", advice),
    over: adviceOn("storage_over", advice),
  };
  const conditions = { room: "good", near: "watch", over: "bad" } as const;
  return { name: "Storage", condition: conditions[level], words, remedy: remedies[level] };
}

function records({ damaged }: Status, advice: Advice): Component {
  const number = damaged.length;
  return {
    name: "Records", condition: number > 0 ? "bad" : "good",
    words: number > 0 ? `${count(number, "record")} spoilt by the disk` : "no damage found",
    remedy: number > 0 ? adviceOn("record_damaged", advice) : "",
  };
}

function loss({ alarm }: Status, advice: Advice): Component | null {
  if (alarm === null) return null;
  return {
    name: "Loss", condition: "bad", words: sentence(alarm),
    remedy: adviceOn("loss_jumped", advice),
  };
}

function copies({ copies: { states, wanted } }: Status, advice: Advice): Component | null {
  const lacking = states.filter((state) => wanted !== undefined && state.copies !== null
    && state.copies < wanted);
  if (states.length === 0) return null;
  const [first] = lacking;
  return {
    name: "Copies of the model", condition: first === undefined ? "good" : "watch",
    words: first === undefined ? "enough members hold the newest states"
      : `the state of height ${first.height} is with ${first.copies} of ${wanted} members`,
    remedy: first === undefined ? "" : adviceOn("copies_lack", advice),
  };
}
