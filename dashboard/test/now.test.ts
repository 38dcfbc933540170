import { describe, expect, it } from "vitest";
import { announcement, nowOf, waitedFor } from "../src/now";
import { heard, NOTHING_KNOWN, underWay } from "../src/state";
import { ME, OTHERS, peer, state, status, told } from "./told";

const STARTED = told("round_started", 10, { round: 5 });
const SEALED = told("update_sealed", 12, { round: 5, loss_nats: 2.5 });

describe("what happens now", () => {
  it("is training, and why the loop chose to", () => {
    const now = nowOf(heard(state(), STARTED), 11);
    expect(now).toMatchObject({ tone: "busy", chip: "Training", now: "Round 5: training" });
    expect(now.why).toBe("Round 5 is open and a quorum is reachable.");
  });

  it("names how many are waited for, and since when", () => {
    const acknowledged = told("offer_eligible", 12.5, { round: 5, author: ME });
    const waits = [STARTED, SEALED, acknowledged].reduce(heard, state());
    expect(nowOf(waits, 15).why).toBe(
      "1 contribution acknowledged, 3 still to come. Waiting for 3.0 s so far.");
    expect(nowOf(waits, 12.6).why).toBe("1 contribution acknowledged, 3 still to come.");
    expect(waitedFor(waits, underWay(waits)!)).toEqual(OTHERS);
  });

  it("waits for nobody who is gone, or who only looks on", () => {
    const [first, second, third] = OTHERS as [string, string, string];
    const peers = [
      peer(first), peer(second, { connected: false }), peer(third, { part: "observer" }),
    ];
    const waits = [STARTED, SEALED].reduce(heard, state({ peers }));
    expect(waitedFor(waits, underWay(waits)!)).toEqual([ME, first]);
  });

  it("waits for nobody who never trains, nor for itself in a round that it only serves", () => {
    const [first, second, third] = OTHERS as [string, string, string];
    const peers = [peer(first), peer(second, { never_trains: true }), peer(third)];
    const waits = [STARTED, SEALED].reduce(heard, state({ peers }));
    expect(waitedFor(waits, underWay(waits)!)).toEqual([ME, first, third]);
    for (const standing of [{ phase: "serving" }, { never_trains: true }]) {
      const serves = { ...waits, status: status(standing) };
      expect(waitedFor(serves, underWay(serves)!)).toEqual([first, third]);
    }
  });

  it("is waiting where the daemon waits, in its own words", () => {
    const waiting = "2 of 4 reachable, waiting: a quorum needs 3";
    const now = nowOf(state({ status: status({ waiting }) }), 1);
    expect(now).toMatchObject({ tone: "bad", chip: "Waiting", why: `${waiting}.` });
  });

  it("is told at once when a quorum is lost, before the daemon is asked again", () => {
    const lost = told("quorum_wait", 9, { reachable: 2, total: 4, quorum: 3, waiting: true });
    expect(nowOf(heard(state(), lost), 9).why).toContain("2 of 4 reachable");
    expect(nowOf([lost, { ...lost, waiting: false }].reduce(heard, state()), 9).tone).toBe("busy");
  });

  it("is done when the job is", () => {
    const now = nowOf(heard(state(), told("job_ended", 9, { reason: "12 rounds are done" })), 9);
    expect(now).toMatchObject({ tone: "good", chip: "Done" });
    expect(now.why).toContain("12 rounds are done.");
  });

  it("says so where nobody answers, and what to do", () => {
    const now = nowOf({ ...NOTHING_KNOWN, link: { at: "away", why: "" } }, 1);
    expect(now).toMatchObject({ tone: "bad", now: "The daemon does not answer" });
    expect(now.why).toContain("daa-node status");
  });

  it("does not go on telling of what was, once nobody answers", () => {
    const stopped = heard(state(), told("node_stopped", 9, { reason: "drained" }));
    const now = nowOf({ ...stopped, link: { at: "away", why: "" } }, 20);
    expect(now.now).toBe("The daemon does not answer");
    expect(now.why).toContain("It has stopped: Drained.");
  });
});

describe("a screen reader", () => {
  it("hears the same while rounds go on, and of what is wrong at once", () => {
    const training = heard(state(), STARTED), gathering = heard(training, SEALED);
    const said = [training, gathering].map((each) => announcement(each, nowOf(each, 12)));
    expect(new Set(said).size).toBe(1);
    const waits = state({ status: status({ waiting: "2 of 4 reachable" }) });
    expect(announcement(waits, nowOf(waits, 1))).toContain("2 of 4 reachable");
  });
});
