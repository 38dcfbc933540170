import { expect, test } from "vitest";
import { blake3 } from "../src/blake3";
import { verifiedByLibrary } from "../src/ml_dsa";
import { decode } from "../src/net/canonical";
import { HELLO_CONTEXT, unhex } from "../src/net/messages";
import { proofs } from "../src/proofs";
import type { Canonical } from "../src/protocol";
import { GOLDEN } from "./golden";

test("chunks and links come out as the daemon has them", async () => {
  const found = proofs(verifiedByLibrary, await blake3());
  for (const { kind, parameters, blobs, result } of GOLDEN.proofs) {
    const given = decode(unhex(parameters)) as readonly Canonical[];
    expect(await found[kind]!(given, blobs.map(unhex)), kind).toEqual(result);
  }
  expect(new Set(GOLDEN.proofs.flatMap(({ result }) => result))).toEqual(new Set([0, 1]));
});

test("of signatures, the good ones are told from the others", async () => {
  const found = proofs(verifiedByLibrary, await blake3());
  const [key, good] = [unhex(GOLDEN.public_key), unhex(GOLDEN.signature)];
  const spoilt = good.slice();
  spoilt[7]! ^= 64;
  const given = [unhex(GOLDEN.hello_signs), HELLO_CONTEXT];
  const bits = await found["certificate"]!(given, [key, good, key, spoilt, key, good]);
  expect(bits).toEqual([1, 0, 1]);
});
