import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { blake3, type Digest } from "../src/blake3";
import { publicKeyOf } from "../src/ml_dsa";
import { decode, encode } from "../src/net/canonical";
import { BEAT_MS, Conversation, SILENT_MS, type Told } from "../src/net/conversation";
import { FrameReader } from "../src/net/framing";
import {
  HELLO_CONTEXT, helloBytes, unhex, VERDICT_CONTEXT, verdictBytes,
} from "../src/net/messages";
import { WAITING_MAX } from "../src/net/outbox";
import type { Canonical } from "../src/protocol";
import { CHAIN, GATEWAY, GOLDEN, NONCE, SESSION, TASK } from "./golden";

const SEED = unhex(GOLDEN.seed);
const KEY = publicKeyOf(SEED);
const WELCOME = ["welcome", SESSION, unhex(GOLDEN.name), [5, 3, 1]];
const given = (id: string, kind = "dag"): Canonical => ["task", unhex(id), kind, [], [], 30_000];

let digest: Digest;

beforeAll(async () => {
  digest = await blake3();
});

/** A conversation, and the gateway's end of its line. */
class Table {
  readonly told: Told[] = [];
  readonly said: Canonical[][] = [];
  readonly signed: [payload: Uint8Array, context: Uint8Array][] = [];
  isClosed = false;
  readonly page: Conversation;
  readonly #frames = new FrameReader();

  constructor() {
    const sign = async (payload: Uint8Array, context: Uint8Array): Promise<Uint8Array> => {
      this.signed.push([payload, context]);
      return new Uint8Array(3309);
    };
    this.page = new Conversation(
      {
        chainId: CHAIN, gateway: GATEWAY, peerId: "12D3KooWPage", digest, kinds: ["dag"],
        key: { publicKey: KEY, sign }, words: "daa-page/1", nowS: () => 1_800_000_000.9,
      },
      {
        send: (bytes) => {
          for (const payload of this.#frames.push(bytes)) {
            this.said.push(decode(payload) as Canonical[]);
          }
        },
        close: () => {
          this.isClosed = true;
        },
      },
      (told) => this.told.push(told),
    );
  }

  /** The gateway says these; until the page has done with them. */
  async hear(...messages: Canonical[]): Promise<this> {
    for (const message of messages) {
      const payload = encode(message);
      const frame = new Uint8Array(4 + payload.length);
      new DataView(frame.buffer).setUint32(0, payload.length);
      frame.set(payload, 4);
      this.page.hear(frame);
    }
    return this.settled();
  }

  async settled(): Promise<this> {
    await vi.advanceTimersByTimeAsync(0);
    return this;
  }

  /** Seated at the gateway. */
  open(): Promise<this> {
    return this.hear(["challenge", 1, NONCE], WELCOME);
  }

  get words(): Canonical[] {
    return this.said.map(([name]) => name!);
  }

  get end(): string | undefined {
    return this.told.flatMap((each) => (each.type === "ended" ? [each.reason] : []))[0];
  }
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval",
    "performance"] });
});

afterEach(() => {
  vi.useRealTimers();
});

test("challenged, it greets by a signature for this gateway and this nonce", async () => {
  const table = await new Table().settled();
  expect(table.said).toEqual([]);
  await table.hear(["challenge", 1, NONCE]);
  const [[name, version, chain, record]] = table.said as [Canonical[]];
  expect([name, version, chain]).toEqual(["hello", 1, CHAIN]);
  expect(table.signed).toEqual([
    [helloBytes(GATEWAY, NONCE, digest(record as Uint8Array)), HELLO_CONTEXT],
  ]);
  const fields = decode(record as Uint8Array) as Canonical[];
  expect(fields.slice(6, 9)).toEqual([1_800_000_000, 1_800_086_400, ["dag"]]);
  expect(table.told).toEqual([]);
  await table.hear(WELCOME);
  expect(table.told).toEqual([
    { type: "joined", name: unhex(GOLDEN.name), lifetime: [5, 3, 1] },
  ]);
});

test("a verdict is signed for this session and this task, and said once", async () => {
  const table = await new Table().open();
  await table.hear(given(TASK, "loss"));
  expect(table.told.at(-1)).toMatchObject({ type: "task", task: { id: TASK, kind: "loss" } });
  const result = [Uint8Array.of(1, 2), 3];
  table.page.verdict(TASK, result, 12.6);
  table.page.verdict(TASK, result, 12.6);
  await table.settled();
  expect(table.said.slice(1)).toEqual([
    ["verdict", unhex(TASK), result, 13, new Uint8Array(3309)],
  ]);
  const signs = verdictBytes(CHAIN, GATEWAY, SESSION, TASK, "loss", digest(encode(result)));
  expect(table.signed.at(-1)).toEqual([signs, VERDICT_CONTEXT]);
});

test("what is of no task of this session is not said", async () => {
  const table = await new Table().open();
  table.page.verdict(TASK, [1], 1);
  table.page.drop(TASK);
  await table.hear(given(TASK));
  table.page.drop(TASK);
  table.page.verdict(TASK, [1], 1);
  table.page.drop(TASK);
  await table.settled();
  expect(table.words).toEqual(["hello", "drop"]);
});

test("readiness is said in the session alone", async () => {
  const table = new Table();
  table.page.ready(2, ["dag"]);
  await table.open();
  table.page.ready(1, ["dag", "loss"]);
  await table.settled();
  expect(table.said.slice(1)).toEqual([["ready", 1, ["dag", "loss"]]]);
});

test("whoever leaves gives back what is in hand, and is told the end once", async () => {
  const table = await new Table().open();
  await table.hear(given(TASK), given("0a".repeat(16)));
  table.page.leave();
  table.page.leave();
  table.page.gone();
  await table.settled();
  expect(table.words).toEqual(["hello", "drop", "drop"]);
  expect(table.told.filter(({ type }) => type === "ended")).toHaveLength(1);
  expect([table.end, table.isClosed]).toEqual(["left", true]);
  await table.hear(given("0b".repeat(16)));
  expect(table.told.at(-1)?.type).toBe("ended");
});

test.each([
  ["its word", ["no", "full", "all places are taken"], "full"],
  ["a second challenge", ["challenge", 1, NONCE], "malformed"],
  ["a second welcome", WELCOME, "malformed"],
  ["a message of no form", ["sing", 1], "malformed"],
])("the gateway ends it by %s", async (_, message, reason) => {
  const table = await new Table().open();
  await table.hear(message as Canonical);
  expect([table.end, table.isClosed]).toEqual([reason, true]);
});

describe("before the session", () => {
  test.each([
    ["another version", ["challenge", 2, NONCE], "version"],
    ["a task", given(TASK), "malformed"],
    ["a welcome", WELCOME, "malformed"],
    ["a refusal", ["no", "address-full", "x"], "address-full"],
  ])("%s ends it", async (_, message, reason) => {
    const table = await new Table().hear(message as Canonical);
    expect(table.end).toBe(reason);
    expect(table.said).toEqual([]);
  });

  test("a line that ends is lost", async () => {
    const table = new Table();
    table.page.gone();
    await table.settled();
    expect(table.end).toBe("lost");
  });
});

test("a frame that is announced too long ends it", async () => {
  const table = await new Table().open();
  table.page.hear(Uint8Array.of(0xff, 0, 0, 0));
  await table.settled();
  expect(table.end).toBe("oversize");
});

test("it says beats when it says nothing else, and hears the gateway's", async () => {
  const table = await new Table().open();
  for (let beat = 0; beat < 5; beat++) {
    await vi.advanceTimersByTimeAsync(BEAT_MS);
    await table.hear(["beat", beat]);
  }
  expect(table.end).toBeUndefined();
  const beats = table.said.slice(1);
  expect(beats.length).toBeGreaterThanOrEqual(4);
  expect(beats).toEqual(beats.map((_, number) => ["beat", number]));
});

test("a gateway that says nothing for three beats is given up", async () => {
  const table = await new Table().open();
  await vi.advanceTimersByTimeAsync(SILENT_MS - BEAT_MS);
  expect(table.end).toBeUndefined();
  await vi.advanceTimersByTimeAsync(BEAT_MS + 1);
  expect(table.end).toBe("silent");
});

test("it says no more than a gateway takes, and keeps the order", async () => {
  const table = await new Table().open();
  for (let count = 0; count < 40; count++) table.page.ready(count % 3, []);
  expect(table.said.length).toBeLessThan(20);
  await vi.advanceTimersByTimeAsync(20_000);
  const counts = table.said.filter(([name]) => name === "ready").map(([, count]) => count);
  expect(counts).toEqual(Array.from({ length: 40 }, (_, count) => count % 3));
  for (let count = 0; count < 2 * WAITING_MAX; count++) table.page.ready(1, []);
  expect(table.end).toBe("too-fast");
  const saidBefore = table.said.length;
  await vi.advanceTimersByTimeAsync(20_000);
  expect(table.said).toHaveLength(saidBefore);
});
