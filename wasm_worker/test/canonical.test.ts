import { beforeAll, expect, test } from "vitest";
import { blake3, type Digest } from "../src/blake3";
import { decode, encode, NotCanonical } from "../src/net/canonical";
import { hex, unhex } from "../src/net/messages";
import type { Canonical } from "../src/protocol";
import { GOLDEN } from "./golden";

let digest: Digest;

beforeAll(async () => {
  digest = await blake3();
});

test("what the daemon encodes is read, and encoded to the same bytes", () => {
  for (const value of [...GOLDEN.values, GOLDEN.deepest]) {
    expect(hex(encode(decode(unhex(value))))).toBe(value);
  }
});

test("integers are exact up to 64 bits, in their shortest form", () => {
  for (const [decimal, bytes] of GOLDEN.integers) {
    expect(hex(encode(BigInt(decimal)))).toBe(bytes);
    const value = decode(unhex(bytes));
    expect(String(value)).toBe(decimal);
    expect(typeof value).toBe(Number.isSafeInteger(Number(decimal)) ? "number" : "bigint");
  }
  for (const value of [0.5, NaN, 2 ** 53, 2n ** 64n, -(2n ** 63n) - 1n]) {
    expect(() => encode(value)).toThrow(NotCanonical);
  }
});

test("every size has its shortest form", () => {
  for (const [size, ...digests] of GOLDEN.sizes) {
    const values = [new Uint8Array(size), "x".repeat(size), new Array<Canonical>(size).fill(null)];
    for (const [at, value] of values.entries()) {
      const encoded = encode(value);
      expect(hex(digest(encoded))).toBe(digests[at]);
      const again = decode(encoded) as typeof value;
      expect(again).toHaveLength(size);
      expect(hex(digest(encode(again)))).toBe(digests[at]);
    }
  }
});

test("values become what they are called", () => {
  const value = new Map<string, Canonical>([
    ["a", [null, true, "caf\u00e9", Uint8Array.of(1, 2)]], ["b", new Map()],
  ]);
  expect(decode(encode(value))).toEqual(value);
  // keys in the order of code points, which is not that of UTF-16
  const keys = new Map([["\u{1f600}", 1], ["\ufb01", 2]]);
  expect([...(decode(encode(keys)) as ReadonlyMap<string, number>).keys()])
    .toEqual(["\ufb01", "\u{1f600}"]);
});

test("what the daemon refuses is refused", () => {
  for (const payload of GOLDEN.refused) {
    expect(() => decode(unhex(payload)), payload).toThrow(NotCanonical);
  }
});

test("what has no encoding is not encoded", () => {
  expect(() => encode("\ud800")).toThrow(NotCanonical);
  let deep: Canonical = null;
  for (let depth = 0; depth < 17; depth++) deep = [deep];
  expect(() => encode(deep)).toThrow(NotCanonical);
});
