import { beforeAll, describe, expect, test } from "vitest";
import { blake3, type Digest } from "../src/blake3";
import { publicKeyOf, signerOf, verifiedByLibrary } from "../src/ml_dsa";
import { encode } from "../src/net/canonical";
import { FrameReader, framed, Oversize, TO_PAGE_BYTES_MAX } from "../src/net/framing";
import { pemOf } from "../src/net/keys";
import {
  beat, drop, heard, hello, HELLO_CONTEXT, helloBytes, hex, Malformed, ready, recordBytes, unhex,
  verdict, verdictBytes,
} from "../src/net/messages";
import { CHAIN, GATEWAY, GOLDEN, NONCE, SESSION, TASK } from "./golden";

const RESULT = [new TextEncoder().encode("12345678"), 1];
const SIGNATURE = new Uint8Array(3309);
const SEED = unhex(GOLDEN.seed);

let digest: Digest;

beforeAll(async () => {
  digest = await blake3();
});

describe("what the page says is, byte for byte, what the daemon reads", () => {
  const record = recordBytes({
    chainId: CHAIN, publicKey: unhex(GOLDEN.public_key), peerId: "12D3KooWPage", sequence: 4,
    issuedS: 1_800_000_000, kinds: ["loss", "dag", "loss"], words: "daa-page/1",
  });

  test("the record, and what is signed", () => {
    expect(hex(record)).toBe(GOLDEN.record);
    expect(hex(helloBytes(GATEWAY, NONCE, digest(record)))).toBe(GOLDEN.hello_signs);
    const signed = verdictBytes(CHAIN, GATEWAY, SESSION, TASK, "loss", digest(encode(RESULT)));
    expect(hex(signed)).toBe(GOLDEN.verdict_signs);
  });

  test("messages", () => {
    expect({
      hello: hex(hello(CHAIN, record, SIGNATURE)),
      ready: hex(ready(2, ["dag", "loss"])),
      verdict: hex(verdict(TASK, RESULT, 35.4, SIGNATURE)),
      drop: hex(drop(TASK)),
      beat: hex(beat(300)),
    }).toEqual(GOLDEN.from_page);
  });
});

test("what the daemon says is understood", () => {
  const said = GOLDEN.to_page;
  expect(heard(unhex(said.challenge))).toEqual({ type: "challenge", version: 1, nonce: NONCE });
  expect(heard(unhex(said.welcome))).toEqual({
    type: "welcome", session: SESSION, name: unhex(GOLDEN.name), lifetime: [5, 3, 1],
  });
  expect(heard(unhex(said.task))).toEqual({
    type: "task",
    task: {
      id: TASK, kind: "chunks", parameters: [new TextEncoder().encode("1".repeat(32)), ["x", 5]],
      blobs: [new TextEncoder().encode("abc"), new Uint8Array()], deadlineMs: 30_000,
    },
  });
  expect(heard(unhex(said.taken)))
    .toEqual({ type: "taken", task: TASK, agreed: null, lifetime: [6, 3, 1] });
  expect(heard(unhex(said["taken later"])))
    .toEqual({ type: "taken", task: TASK, agreed: true, lifetime: [6, 4, 1] });
  expect(heard(unhex(said.beat))).toEqual({ type: "beat" });
  expect(heard(unhex(said.no)))
    .toEqual({ type: "no", reason: "full", words: "all places are taken" });
});

test("what has no form of the protocol is malformed", () => {
  const nonce = new Uint8Array(32);
  for (const message of [
    null, [], ["beat"], ["beat", -1], ["beat", "1"], ["beat", 1, 2], [1], ["sing", 1],
    ["challenge", 1, new Uint8Array(31)], ["challenge", true, nonce], ["no", 1, "x"],
    ["welcome", new Uint8Array(16), nonce, [1, 2]], ["taken", new Uint8Array(16), 1, [1, 2, 3]],
    ["task", new Uint8Array(16), "dag", [], ["text"], 1],
    ["task", new Uint8Array(16), "dag", 1, []],
  ]) {
    expect(() => heard(encode(message)), JSON.stringify(message)).toThrow(Malformed);
  }
  expect(() => heard(Uint8Array.of(0xc1))).toThrow(Malformed);
});

describe("keys", () => {
  test("the public key is the daemon's, of the same seed, and so is the exported file", () => {
    expect(hex(publicKeyOf(SEED))).toBe(GOLDEN.public_key);
    expect(pemOf(SEED)).toBe(GOLDEN.pem);
  });

  test("a signature of the daemon's is good here, and nothing else is", async () => {
    const said = unhex(GOLDEN.hello_signs), signature = unhex(GOLDEN.signature);
    const key = unhex(GOLDEN.public_key);
    expect(await verifiedByLibrary(key, signature, said, HELLO_CONTEXT)).toBe(true);
    expect(await verifiedByLibrary(key, signature, said, new Uint8Array())).toBe(false);
    expect(await verifiedByLibrary(key, signature.slice(1), said, HELLO_CONTEXT)).toBe(false);
    expect(await verifiedByLibrary(key.slice(1), signature, said, HELLO_CONTEXT)).toBe(false);
    signature[100]! ^= 1;
    expect(await verifiedByLibrary(key, signature, said, HELLO_CONTEXT)).toBe(false);
  });

  test("what is signed here is good", async () => {
    const said = new TextEncoder().encode("something");
    const signature = await signerOf(SEED)(said, HELLO_CONTEXT);
    const isGood = await verifiedByLibrary(publicKeyOf(SEED), signature, said, HELLO_CONTEXT);
    expect(isGood).toBe(true);
  });
});

describe("frames", () => {
  const payloads = [new Uint8Array(0), Uint8Array.of(1), new Uint8Array(7_000).fill(5)];
  const stream = new Uint8Array(payloads.reduce((sum, each) => sum + 4 + each.length, 0));
  let at = 0;
  for (const payload of payloads) {
    new DataView(stream.buffer).setUint32(at, payload.length);
    stream.set(payload, at + 4);
    at += 4 + payload.length;
  }

  test.each([1, 2, 3, 5, 900, 1e6])("are whole again when cut into pieces of %i", (size) => {
    const reader = new FrameReader();
    const whole: Uint8Array[] = [];
    for (let from = 0; from < stream.length; from += size) {
      whole.push(...reader.push(stream.subarray(from, from + size)));
    }
    expect(whole.map(hex)).toEqual(payloads.map(hex));
  });

  test("that are too long are refused by their length alone", () => {
    const head = new Uint8Array(4);
    new DataView(head.buffer).setUint32(0, TO_PAGE_BYTES_MAX + 1);
    expect(() => new FrameReader().push(head)).toThrow(Oversize);
    expect(() => framed(new Uint8Array(64 * 1024 + 1))).toThrow(Oversize);
    expect(framed(Uint8Array.of(9))).toEqual(Uint8Array.of(0, 0, 0, 1, 9));
  });
});
