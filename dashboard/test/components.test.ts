import { describe, expect, it } from "vitest";
import { componentsOf, type Component } from "../src/components";
import { ADVICE, OTHERS, peer, status } from "./told";

function named(name: string, components: readonly Component[]): Component {
  const found = components.find((component) => component.name === name);
  if (found === undefined) throw new Error(`no component ${name}`);
  return found;
}

describe("a node where all is well", () => {
  it("has no part with anything to do", () => {
    const all = componentsOf(status(), OTHERS.map((id) => peer(id)), ADVICE);
    expect(all.map(({ condition, remedy }) => [condition, remedy])).toEqual(
      all.map(() => ["good", ""]));
    expect(all.map(({ name }) => name)).toEqual(
      ["Quorum", "Worker", "Reachability", "Storage", "Records"]);
  });
});

describe("what is wrong is named with what to do", () => {
  const waiting = "2 of 4 reachable, waiting: a quorum needs 3";
  const cases: readonly [
    name: string, condition: string, more: Parameters<typeof status>[0], remedy: string,
  ][] = [
    ["Worker", "bad", { trainer_pid: null }, "Mend trainer_lost."],
    ["Quorum", "bad", { waiting, validators: { reachable: 2, total: 4, quorum: 3, stake: 4 } },
      "once a quorum is back."],
    ["Quorum", "watch", { validators: { reachable: 3, total: 4, quorum: 3, stake: 4 } },
      "See under Nodes who is gone, and why."],
    ["Reachability", "watch", {
      reachability: {
        reach: "unreachable", why: "nobody got through", seen_at: [], relays: [], punched: [],
      },
    }, "Nobody got through. Forward its port"],
    ["Storage", "bad", {
      storage: { chain_bytes: 9, work_bytes: 9, bytes_max: 10, level: "over" },
    }, "Mend storage_over."],
    ["Storage", "watch", {
      storage: { chain_bytes: 5, work_bytes: 4, bytes_max: 10, level: "near" },
    }, "Mend storage_near."],
    ["Records", "bad", { damaged: ["block 3"] }, "Mend record_damaged."],
    ["Loss", "bad", { alarm: "it jumped from 2.1 to 9.9" }, "Mend loss_jumped."],
    ["Copies of the model", "watch", {
      copies: { wanted: 3, states: [{ height: 8, here: true, coming: false, copies: 1 }] },
    }, "Mend copies_lack."],
  ];
  it.each(cases)("%s is %s", (name, condition, more, remedy) => {
    const part = named(name, componentsOf(status(more), [], ADVICE));
    expect(part.condition).toBe(condition);
    expect(part.remedy).toContain(remedy);
  });

  it("a worker is not missed once the job is done", () => {
    const over = status({ trainer_pid: null, done: true });
    const part = named("Worker", componentsOf(over, [], ADVICE));
    expect(part.condition).toBe("good");
  });
});

describe("how others see this node", () => {
  it("is what the one says that sees it worst, with what would raise it", () => {
    const view = { score: 0.9, weakest: "uptime", would_raise: null };
    const peers = [
      peer(OTHERS[0]!, { sees_us: { ...view, level: "priority" } }),
      peer(OTHERS[1]!, { sees_us: {
        level: "low", score: 0.2, weakest: "network", would_raise: "a faster uplink",
      } }),
    ];
    const part = named("Standing with others", componentsOf(status(), peers, ADVICE));
    expect(part.condition).toBe("bad");
    expect(part.remedy).toContain("Would raise it: A faster uplink.");
  });
});
