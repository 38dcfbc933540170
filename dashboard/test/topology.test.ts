import { describe, expect, it } from "vitest";
import { DRAWN_MAX, hourOf, neighboursOf, starWords, wayOf } from "../src/topology";
import { OTHERS, peer } from "./told";

const [ANNE = "", BERT = ""] = OTHERS;

describe("the way to a node", () => {
  it("is what leads there now, and gone where nothing does", () => {
    expect(wayOf(peer(ANNE))).toBe("direct");
    expect(wayOf(peer(ANNE, { dialled: true, reach: "unreachable" }))).toBe("direct");
    expect(wayOf(peer(ANNE, { dialled: false }))).toBe("inward");
    expect(wayOf(peer(ANNE, { dialled: false, relayed: true }))).toBe("relayed");
    expect(wayOf(peer(ANNE, { punched: true }))).toBe("punched");
    expect(wayOf(peer(ANNE, { connected: false, relayed: true }))).toBe("gone");
  });

  it("is guessed from the record where the daemon does not say who dialled", () => {
    expect(wayOf(peer(ANNE, { reach: "unreachable" }))).toBe("inward");
    expect(wayOf(peer(ANNE, { dialled: null, reach: "unreachable" }))).toBe("inward");
  });
});

describe("who is drawn", () => {
  it("are members, here or gone, and then strangers that are here", () => {
    const drawn = neighboursOf([
      peer("aa", { part: "observer" }), peer("bb", { part: "observer", connected: false }),
      peer(ANNE), peer(BERT, { connected: false, rtt_ms: 9 }),
    ]);
    expect(drawn.map(({ name }) => name)).toEqual([ANNE.slice(0, 8), BERT.slice(0, 8), "aa"]);
    expect(drawn.map(({ rttMs }) => rttMs)).toEqual([1.5, null, 1.5]);
  });

  it("are as many as can be told apart", () => {
    const many = Array.from({ length: 300 }, (_, at) => peer(`${at}`.padStart(64, "0")));
    expect(neighboursOf(many)).toHaveLength(DRAWN_MAX);
    const crowd = many.map((each) => ({ ...each, part: "observer" }));
    expect(neighboursOf([...crowd, peer(ANNE)])[0]?.name).toBe(ANNE.slice(0, 8));
  });

  it("are told in words, each way by its number", () => {
    const drawn = neighboursOf([
      peer(ANNE), peer(BERT, { relayed: true, rtt_ms: 80 }),
      peer("ee".repeat(32), { connected: false }),
    ]);
    expect(starWords(drawn)).toBe("3 nodes: 1 reached directly, 1 through a relay, 1 gone. "
      + "Round trips take 1.5 ms to 80 ms.");
  });
});

describe("the hour", () => {
  const told = {
    minutes: 3, peers_in_all: 2, peers: [
      { node_id: ANNE, peer_id: "a", connected: true, rtts_ms: [null, 4, 6] },
      { node_id: null, peer_id: "12D3KooWstranger", connected: false, rtts_ms: [90, null, null] },
    ],
  };

  it("has a row a node and a column a minute", () => {
    const { rows, columns } = hourOf(told, 1_764_000_000);
    expect(rows.map(({ name, end }) => [name, end])).toEqual([
      [ANNE.slice(0, 8), "6.0 ms"], ["stranger", "gone"],
    ]);
    expect(columns).toHaveLength(3);
    expect(new Set(columns).size).toBe(3);
  });

  it("is told in words", () => {
    expect(hourOf(told, 0).words).toBe("Round trips to 2 nodes in the last hour, by the minute: "
      + "6.0 ms in the middle, 90 ms at the most.");
    expect(hourOf({ ...told, peers: [] }, 0).words).toContain("No round trip");
  });
});
