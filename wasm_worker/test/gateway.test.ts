import { afterEach, expect, test, vi } from "vitest";
import { againInMs } from "../src/net/coming_back";
import { askedGateway, isSecureAddress, NoWay, read } from "../src/net/gateway";

const TOLD = {
  schema_version: 1, chain_id: "ab".repeat(32), node_id: "cd".repeat(32), peer_id: "12D3KooW",
  dial: ["/ip4/127.0.0.1/tcp/4001/ws/p2p/12D3KooW", "/dns4/node.example/tcp/4001/wss/p2p/12D3KooW"],
  protocol_version: 1, protocol_version_min: 1, site: "ef", height: 3, wanted: ["dag"],
  volunteers: [3, 256],
};

function reasonOf(change: object, isSecure = false): string {
  try {
    read(JSON.stringify({ ...TOLD, ...change }), isSecure);
  } catch (fault) {
    if (fault instanceof NoWay) return fault.reason;
    throw fault;
  }
  return "welcome";
}

afterEach(() => {
  vi.unstubAllGlobals();
});

test("what a gateway tells is read", () => {
  expect(read(JSON.stringify(TOLD), false)).toEqual({
    chainId: TOLD.chain_id, nodeId: TOLD.node_id, peerId: "12D3KooW", protocolVersion: 1,
    site: "ef", wanted: ["dag"], sessions: [3, 256], dial: TOLD.dial,
  });
  expect(read(JSON.stringify({ ...TOLD, site: null }), false).site).toBeNull();
});

test("a page that came over TLS dials over TLS alone", () => {
  expect(read(JSON.stringify(TOLD), true).dial).toEqual([TOLD.dial[1]]);
  expect(reasonOf({ dial: [TOLD.dial[0]] }, true)).toBe("unreachable");
  expect(isSecureAddress("/dns4/node.example/tcp/443/tls/ws")).toBe(true);
  expect(isSecureAddress("/dns4/wss/tcp/443/ws/p2p/12D3KooW")).toBe(false);
});

test.each([
  [{ protocol_version: 2, protocol_version_min: 2 }, "version"],
  [{ protocol_version: 0, protocol_version_min: 0 }, "version"],
  [{ protocol_version: 2 }, "welcome"],
  [{ dial: [] }, "unreachable"],
  [{ chain_id: "AB".repeat(32) }, "no-gateway"],
  [{ node_id: "cd" }, "no-gateway"],
  [{ peer_id: 1 }, "no-gateway"],
  [{ dial: "x" }, "no-gateway"],
  [{ dial: Array(16).fill(TOLD.dial[0]) }, "welcome"],
  [{ dial: Array(17).fill(TOLD.dial[0]) }, "no-gateway"],
  [{ wanted: [1] }, "no-gateway"],
  [{ volunteers: [1] }, "no-gateway"],
  [{ protocol_version: "1" }, "no-gateway"],
])("with %j the answer is %s", (change, reason) => {
  expect(reasonOf(change)).toBe(reason);
});

test.each([
  [() => Promise.reject(new TypeError("failed")), "unreachable"],
  [() => Promise.resolve(new Response("", { status: 404 })), "no-gateway"],
  [() => Promise.resolve(new Response("", { status: 503 })), "unreachable"],
  [() => Promise.resolve(new Response("<!doctype html>")), "no-gateway"],
  [() => Promise.resolve(new Response("x".repeat(70_000))), "no-gateway"],
])("an answer that is none has a reason", async (answer, reason) => {
  vi.stubGlobal("fetch", answer);
  await expect(askedGateway("http://127.0.0.1:8080")).rejects.toMatchObject({ reason });
});

test("it comes back only after what passes, later and later", () => {
  for (const reason of ["standing", "malformed", "elsewhere", "version", "storage", "left"]) {
    expect(againInMs(reason, 0, 0.5)).toBeNull();
  }
  const pauses = [0, 1, 2, 3, 20].map((attempt) => againInMs("full", attempt, 0)!);
  expect(pauses).toEqual([...pauses].sort((a, b) => a - b));
  expect([pauses[0], pauses.at(-1)]).toEqual([2_000, 300_000]);
  expect(againInMs("lost", 20, 0.999)).toBeLessThanOrEqual(600_000);
});
