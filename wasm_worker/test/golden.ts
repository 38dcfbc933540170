/** What the daemon's own code made: tests/wasm_worker/golden_volunteer.py. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

interface Golden {
  readonly values: readonly string[];
  readonly sizes: readonly [size: number, bytes: string, text: string, list: string][];
  readonly integers: readonly [decimal: string, bytes: string][];
  readonly deepest: string;
  readonly refused: readonly string[];
  readonly seed: string;
  readonly public_key: string;
  readonly pem: string;
  readonly record: string;
  readonly hello_signs: string;
  readonly verdict_signs: string;
  readonly from_page: Record<"hello" | "ready" | "verdict" | "drop" | "beat", string>;
  readonly to_page: Record<
    "challenge" | "welcome" | "task" | "taken" | "taken later" | "beat" | "no", string
  >;
  readonly name: string;
  readonly proofs: readonly {
    readonly kind: string; readonly parameters: string; readonly blobs: readonly string[];
    readonly result: readonly number[];
  }[];
  readonly signature: string;
}

const FILE = join(import.meta.dirname, "../../tests/golden/volunteer.json");
export const GOLDEN = JSON.parse(readFileSync(FILE, "utf8")) as Golden;

export const CHAIN = Uint8Array.from({ length: 32 }, (_, at) => at);
export const GATEWAY = Uint8Array.from({ length: 32 }, (_, at) => 32 + at);
export const NONCE = new Uint8Array(32).fill(7);
export const SESSION = new Uint8Array(16).fill(8);
export const TASK = "09".repeat(16);
