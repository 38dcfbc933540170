/** A lane as `simnet report` tells of one, for tests. */

import type { Lane } from "../../src/report/story";

export function laneOf(changes: Partial<Lane> = {}): Lane {
  return {
    node: 0, liar: null,
    views: { at: [], view: [] },
    votes: { at: [], view: [], kind: [] },
    finals: { at: [], height: [], payload: [] },
    losses: { at: [], height: [], nats: [] },
    downs: [],
    ...changes,
  };
}
