/** Pieces of the chain's proofs, which need no Python: signatures, digests and links, in bits. */

import type { Digest } from "./blake3";
import type { Verify } from "./ml_dsa";
import { decode, encode, NotCanonical } from "./net/canonical";
import type { Canonical } from "./protocol";

export type Proof = (
  parameters: readonly Canonical[], blobs: readonly Uint8Array[],
) => Promise<readonly Canonical[]>;
export type Proofs = Readonly<Record<string, Proof>>;

// of what a vertex's id is the digest of: a list of two, the word and the vertex
const VERTEX_HEAD = encode(["daa/v1/vertex", null]).slice(0, -1);

/** By kind, what docs/volunteers.md says of it. They throw for what has no such form. */
export function proofs(verify: Verify, digest: Digest): Proofs {
  return {
    certificate: async ([payload, context], blobs) => {
      const bits: number[] = [];
      for (let at = 0; at + 1 < blobs.length; at += 2) {
        const [key, signature] = [blobs[at]!, blobs[at + 1]!];
        bits.push(Number(await verify(key, signature, bytes(payload), bytes(context))));
      }
      return bits;
    },
    chunks: async (digests, blobs) =>
      blobs.map((chunk, at) => Number(isSame(digest(chunk), bytes(digests[at])))),
    dag: async (ids, blobs) => blobs.map((vertex, at) => {
      const named = new Uint8Array(VERTEX_HEAD.length + vertex.length);
      named.set(VERTEX_HEAD);
      named.set(vertex, VERTEX_HEAD.length);
      if (!isSame(digest(named), bytes(ids[at]))) return 0;
      return Number(at === 0 ? isVertex(vertex) : standsOn(vertex, bytes(ids[at - 1])));
    }),
  };
}

function isVertex(payload: Uint8Array): boolean {
  return decoded(payload) instanceof Map;
}

function standsOn(payload: Uint8Array, parent: Uint8Array): boolean {
  const vertex = decoded(payload);
  const parents: unknown = vertex instanceof Map ? vertex.get("parents") : undefined;
  if (!Array.isArray(parents) || parents.length !== 1) return false;
  const [only] = parents as Canonical[];
  return only instanceof Uint8Array && isSame(only, parent);
}

/** Null for what is not canonical. */
function decoded(payload: Uint8Array): Canonical {
  try {
    return decode(payload);
  } catch (fault) {
    if (fault instanceof NotCanonical) return null;
    throw fault;
  }
}

function bytes(value: Canonical | undefined): Uint8Array {
  if (!(value instanceof Uint8Array)) throw new Error("no bytes where they are due");
  return value;
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
