import { describe, expect, it } from "vitest";
import { aheadBy } from "../src/asking";
import { sharesOf, sharesTold, whyNoHistory } from "../src/contributions";
import { curveOf, curveWords, POINTS_MAX } from "../src/curve";
import { fieldsOf } from "../src/log_card";
import { OTHERS_SHOWN_MAX, rowsOf } from "../src/peers_card";
import { EVENTS_MAX, GONE_MAX, heard, ROUNDS_MAX } from "../src/state";
import { bytes, seconds, sentence } from "../src/words";
import { ME, OTHERS, peer, record, state, told } from "./told";

describe("contributions", () => {
  it("count what was merged, and tell what was not", () => {
    const rounds = [
      record(1, { contributors: [ME, OTHERS[0]!] }),
      record(2, { contributors: [ME, OTHERS[0]!], voided: [OTHERS[0]!] }),
    ];
    expect(sharesOf(rounds)).toEqual([
      { node: ME, rounds: 2, voided: 0, lastHeight: 2, share: 1, notes: [] },
      { node: OTHERS[0], rounds: 1, voided: 1, lastHeight: 2, share: 0.5, notes: [] },
    ]);
  });

  it("of a node with a history are all that it has kept, with why some were left out", () => {
    const host = {
      node_id: ME, rounds: 9, void: 1, tokens: 1_234_567, share: 0.75, last_height: 12,
      left_out: { "came too late": 2 },
    };
    const gone = { ...host, node_id: null, left_out: {}, last_height: null };
    const [mine, others] = sharesTold({ rounds: 12, tokens: 2e6, contributions: [host, gone] });
    expect(mine).toMatchObject({ node: ME, rounds: 9, voided: 1, share: 0.75 });
    expect(mine?.notes).toEqual(["1.2 million tokens", "left out 2 times: came too late"]);
    expect(others).toMatchObject({ node: null, lastHeight: null });
  });

  it("of a node whose settings turn the history off name the setting", () => {
    const settings = (value: boolean | null) => ({
      file: "config.yaml", digest: "d",
      settings: [{ key: "history.enabled", value, origin: "default", reloads: false }],
    });
    expect(whyNoHistory(settings(false))).toContain("history: {enabled: true}");
    expect([settings(true), settings(null), null].map(whyNoHistory)).toEqual([null, null, null]);
  });
});

describe("the curve", () => {
  it("has few points of many rounds, and the newest always", () => {
    const rounds = Array.from({ length: 12_345 }, (_, at) => record(at));
    const { heights } = curveOf(rounds, []);
    expect(heights.length).toBeLessThanOrEqual(POINTS_MAX);
    expect(heights.at(-1)).toBe(12_344);
  });

  it("is told in words, with its lowest point", () => {
    const rounds = [5, 2, 3].map((loss, height) => record(height, { loss_nats: loss }));
    expect(curveWords(curveOf(rounds, []))).toBe(
      "Held-out loss: 5.0000 at height 0, 3.0000 at height 2. The lowest is 2.0000, at height 1.");
    expect(curveWords(curveOf([], []))).toBe("No loss was measured yet.");
  });

  it("gets a point with the event that a round is final", () => {
    const event = told("round_finalized", 9, { round: 3, height: 3, loss_nats: 2.25, wall_s: 1 });
    const before = state({ rounds: [record(2)] });
    const after = [event, event].reduce(heard, before);
    expect(after.rounds.map(({ height }) => height)).toEqual([2, 3]);
    expect(after.status).toMatchObject({ height: 3, loss_nats: 2.25 });
  });

  it("keeps no more rounds than the daemon tells of, though nobody looks at it for days", () => {
    const events = Array.from({ length: ROUNDS_MAX + 20 }, (_, at) => (
      told("round_finalized", at, { round: at, height: at, loss_nats: 2 })));
    const { rounds } = events.reduce(heard, state());
    expect(rounds.length).toBe(ROUNDS_MAX);
    expect(rounds.at(-1)?.height).toBe(ROUNDS_MAX + 19);
  });
});

describe("the daemon's clock", () => {
  const nowMs = Date.parse("2026-11-27T06:00:00Z");

  it("is gone by where the browser's differs by more than its answers could hide", () => {
    expect(aheadBy("Fri, 27 Nov 2026 05:59:00 GMT", nowMs)).toBe(60);
    expect(aheadBy("Fri, 27 Nov 2026 06:10:00 GMT", nowMs)).toBe(-600);
    expect(aheadBy("Fri, 27 Nov 2026 05:59:59 GMT", nowMs + 400)).toBe(0);
  });

  it("is the browser's where nobody tells", () => {
    expect([null, "", "soon"].map((date) => aheadBy(date, nowMs))).toEqual([0, 0, 0]);
  });
});

describe("the nodes", () => {
  it("are members first, whatever names strangers give themselves", () => {
    const strangers = Array.from({ length: 900 }, (_, at) => (
      peer(String(at).padStart(64, "0"), { part: at % 2 ? "observer" : null })));
    const gone = peer(OTHERS[0]!, { connected: false, part: "trainer" });
    const { members, others } = rowsOf([...strangers, gone, peer(OTHERS[1]!)]);
    expect(members.map(({ node_id }) => node_id)).toEqual([OTHERS[1], OTHERS[0]]);
    expect(others).toHaveLength(OTHERS_SHOWN_MAX);
  });

  it("are gone and here again with the event that says so, before the daemon is asked", () => {
    const [left, stays] = [peer(OTHERS[0]!), peer(OTHERS[1]!)];
    const said = (name: string) => told(name, 5, { peer_id: left.peer_id, reason: "ended" });
    const after = heard(state({ peers: [left, stays] }), said("peer_left"));
    expect(after.peers).toEqual([{ ...left, connected: false }, stays]);
    expect(heard(after, said("peer_joined")).peers).toEqual([left, stays]);
  });

  it("that are gone are forgotten, the oldest first, before they fill the memory", () => {
    const many = Array.from({ length: GONE_MAX + 20 }, (_, at) => (
      told("peer_left", at, { peer_id: `peer ${at}`, reason: "left" })));
    const { gone } = many.reduce(heard, state());
    expect([gone.size, gone.has("peer 19"), gone.has("peer 20")]).toEqual([GONE_MAX, false, true]);
  });

  it("and are members are not forgotten for strangers who come and go", () => {
    const member = peer(OTHERS[0]!);
    const left = (peerId: string, reason: string) => (
      told("peer_left", 5, { peer_id: peerId, reason }));
    const crowd = Array.from({ length: GONE_MAX + 20 }, (_, at) => left(`peer ${at}`, "left"));
    const before = state({ peers: [member, peer(OTHERS[1]!, { part: "observer" })] });
    const { gone } = [left(member.peer_id, "killed"), ...crowd].reduce(heard, before);
    expect([gone.size, gone.get(member.peer_id)?.why]).toEqual([GONE_MAX, "killed"]);
  });
});

describe("the log", () => {
  it("keeps the newest events, and no more", () => {
    const many = Array.from({ length: EVENTS_MAX + 20 }, (_, at) => told("decision", at));
    const { events } = many.reduce(heard, state());
    expect(events).toHaveLength(EVENTS_MAX);
    expect(events.at(-1)?.ts).toBe(EVENTS_MAX + 19);
  });

  it("shortens names, and says what is an empty list", () => {
    const event = told("set_decided", 1, { round: 5, author: ME, changes: [] });
    expect(fieldsOf(event)).toBe("round 5, author aaaaaaaa, changes none");
  });

  it("cuts what is long, also of a list", () => {
    const changed = ["x".repeat(90), "y".repeat(90), { z: 1 }];
    const long = told("config_reloaded", 1, { changed });
    expect(fieldsOf(long)).toBe(`changed ${"x".repeat(90)} ${"y".repeat(29)}\u2026`);
    expect(fieldsOf(told("decision_made", 1, { of: [{ z: 1 }, 2] }))).toBe('of {"z":1} 2');
  });
});

describe("words", () => {
  it("are those of a person", () => {
    expect([0.123, 4.2, 75, 600, 10_000, 400_000].map(seconds)).toEqual(
      ["0.12 s", "4.2 s", "75 s", "10 min", "3 h", "5 days"]);
    expect([999, 1_000, 123_456, 5e9].map(bytes)).toEqual(["999 B", "1.0 kB", "123 kB", "5.0 GB"]);
    expect(sentence("waiting: a quorum needs 3")).toBe("Waiting: a quorum needs 3.");
  });
});
