/**
 * What a gateway and this page say to each other on their one stream (docs/volunteers.md).
 *
 *   gateway -challenge-> page -hello-> gateway -welcome-> page -ready-> gateway
 *   gateway -task-> page -verdict | drop-> gateway -taken-> page         beats both ways
 *   gateway -no-> page      the last frame
 */

import type { Canonical, GivenTask, Lifetime } from "../protocol";
import { decode, encode, NotCanonical } from "./canonical";

export const PROTOCOL = "/daa/2/volunteer";
export const PROTOCOL_VERSION = 1;
export const RECORD_LIFETIME_S = 24 * 3600;
const RECORD_WORD = "daa/v1/volunteer";
export const HELLO_CONTEXT = ascii(RECORD_WORD);
export const VERDICT_CONTEXT = ascii("daa/v1/volunteer-verdict");
const DIGEST_BYTES = 32, NONCE_BYTES = 32, SESSION_BYTES = 16, TASK_BYTES = 16;
const WORDS_SHOWN = 200; // of what a gateway says in words

/** A frame that has no form of the protocol. */
export class Malformed extends Error {
  override readonly name = "Malformed";
}

export type Heard =
  | { readonly type: "challenge"; readonly version: number; readonly nonce: Uint8Array }
  | {
    readonly type: "welcome"; readonly session: Uint8Array; readonly name: Uint8Array;
    readonly lifetime: Lifetime;
  }
  | { readonly type: "task"; readonly task: GivenTask }
  | {
    readonly type: "taken"; readonly task: string; readonly agreed: boolean | null;
    readonly lifetime: Lifetime;
  }
  | { readonly type: "beat" }
  | { readonly type: "no"; readonly reason: string; readonly words: string };

/** Throws Malformed. */
export function heard(payload: Uint8Array): Heard {
  const message = list(decoded(payload));
  const [name, ...fields] = message;
  const [first, second, third, fourth, fifth] = fields;
  switch (`${text(name)} ${fields.length}`) {
    case "challenge 2":
      return { type: "challenge", version: count(first), nonce: bytes(second, NONCE_BYTES) };
    case "welcome 3":
      return {
        type: "welcome", session: bytes(first, SESSION_BYTES),
        name: bytes(second, DIGEST_BYTES), lifetime: lifetime(third),
      };
    case "task 5":
      return {
        type: "task",
        task: {
          id: hex(bytes(first, TASK_BYTES)), kind: text(second), parameters: list(third),
          blobs: list(fourth).map((blob) => bytes(blob)), deadlineMs: count(fifth),
        },
      };
    case "taken 3":
      return {
        type: "taken", task: hex(bytes(first, TASK_BYTES)),
        agreed: second === null ? null : bool(second), lifetime: lifetime(third),
      };
    case "beat 1":
      count(first);
      return { type: "beat" };
    case "no 2":
      return { type: "no", reason: text(first), words: text(second).slice(0, WORDS_SHOWN) };
    default:
      throw new Malformed("no message of a gateway has this form");
  }
}

export interface Record {
  readonly chainId: Uint8Array;
  readonly publicKey: Uint8Array;
  readonly peerId: string;
  readonly sequence: number;
  readonly issuedS: number; // Unix time
  readonly kinds: readonly string[];
  readonly words: string;
}

export function recordBytes(record: Record): Uint8Array {
  return encode([
    RECORD_WORD, record.chainId, record.publicKey, record.peerId, "browser", record.sequence,
    record.issuedS, record.issuedS + RECORD_LIFETIME_S, [...new Set(record.kinds)].sort(),
    record.words,
  ]);
}

/** What a hello signs under HELLO_CONTEXT. */
export function helloBytes(
  gateway: Uint8Array, nonce: Uint8Array, recordDigest: Uint8Array,
): Uint8Array {
  return encode(["hello", gateway, nonce, recordDigest]);
}

export function hello(
  chainId: Uint8Array, record: Uint8Array, signature: Uint8Array,
): Uint8Array {
  return encode(["hello", PROTOCOL_VERSION, chainId, record, signature]);
}

export function ready(tasks: number, kinds: readonly string[]): Uint8Array {
  return encode(["ready", tasks, kinds]);
}

/** What a verdict signs under VERDICT_CONTEXT. */
export function verdictBytes(
  chainId: Uint8Array, gateway: Uint8Array, session: Uint8Array, task: string, kind: string,
  resultDigest: Uint8Array,
): Uint8Array {
  return encode([chainId, gateway, session, unhex(task), kind, resultDigest]);
}

export function verdict(
  task: string, result: readonly Canonical[], spentMs: number, signature: Uint8Array,
): Uint8Array {
  return encode(["verdict", unhex(task), result, Math.max(0, Math.round(spentMs)), signature]);
}

export function drop(task: string): Uint8Array {
  return encode(["drop", unhex(task)]);
}

export function beat(number: number): Uint8Array {
  return encode(["beat", number]);
}

export function hex(payload: Uint8Array): string {
  return Array.from(payload, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Throws Malformed. */
export function unhex(digits: string): Uint8Array {
  if (!/^([0-9a-f]{2})*$/.test(digits)) throw new Malformed("no bytes in hex");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function ascii(words: string): Uint8Array {
  return new TextEncoder().encode(words);
}

function decoded(payload: Uint8Array): Canonical {
  try {
    return decode(payload);
  } catch (fault) {
    if (fault instanceof NotCanonical) throw new Malformed(fault.message);
    throw fault;
  }
}

function list(value: Canonical | undefined): readonly Canonical[] {
  if (!Array.isArray(value)) throw new Malformed("no list where one is due");
  return value as readonly Canonical[];
}

function text(value: Canonical | undefined): string {
  if (typeof value !== "string") throw new Malformed("no text where it is due");
  return value;
}

function count(value: Canonical | undefined): number {
  if (typeof value !== "number" || value < 0) throw new Malformed("no number where one is due");
  return value;
}

function bool(value: Canonical | undefined): boolean {
  if (typeof value !== "boolean") throw new Malformed("neither true nor false where it is due");
  return value;
}

function bytes(value: Canonical | undefined, size?: number): Uint8Array {
  if (!(value instanceof Uint8Array) || (size !== undefined && value.length !== size)) {
    throw new Malformed("other bytes than are due");
  }
  return value;
}

function lifetime(value: Canonical | undefined): Lifetime {
  const counts = list(value).map(count);
  if (counts.length !== 3) throw new Malformed("a lifetime is three numbers");
  return counts as unknown as Lifetime;
}
