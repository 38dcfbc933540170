/** BLAKE3 of bytes, as bytes. */

import { createBLAKE3 } from "hash-wasm";

export type Digest = (payload: Uint8Array) => Uint8Array;

/** The one hasher is begun anew for each payload: it is no good for two at once. */
export async function blake3(): Promise<Digest> {
  const hasher = await createBLAKE3();
  return (payload) => hasher.init().update(payload).digest("binary");
}
