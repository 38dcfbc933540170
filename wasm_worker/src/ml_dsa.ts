/**
 * ML-DSA-65 (FIPS 204) by the browser where it has it, else by a library: a hundred times slower
 * to sign, ten times to verify. Both give signatures that the other takes.
 *
 * A key is its seed of 32 bytes.
 */

import { ml_dsa65 } from "@noble/post-quantum/ml-dsa.js";

export const SEED_BYTES = 32;
const NAME = "ML-DSA-65";
// what TypeScript's library does not know yet: the names of formats, and `context`
type Import = (
  format: string, key: Uint8Array, algorithm: string, extractable: boolean, usages: KeyUsage[],
) => Promise<CryptoKey>;
interface WithContext {
  readonly name: string;
  readonly context: Uint8Array;
}

export type Sign = (payload: Uint8Array, context: Uint8Array) => Promise<Uint8Array>;
export type Verify = (
  publicKey: Uint8Array, signature: Uint8Array, payload: Uint8Array, context: Uint8Array,
) => Promise<boolean>;

export function publicKeyOf(seed: Uint8Array): Uint8Array {
  return ml_dsa65.keygen(seed).publicKey;
}

/** The browser's key of this seed, which nobody can read again; null where it has no ML-DSA. */
export async function nativeKeyOf(seed: Uint8Array): Promise<CryptoKey | null> {
  return imported("raw-seed", seed, "sign");
}

export function signerBy(key: CryptoKey): Sign {
  return async (payload, context) => {
    const algorithm: WithContext = { name: NAME, context };
    return new Uint8Array(await crypto.subtle.sign(algorithm, key, payload as BufferSource));
  };
}

export function signerOf(seed: Uint8Array): Sign {
  const { secretKey } = ml_dsa65.keygen(seed);
  return async (payload, context) => ml_dsa65.sign(payload, secretKey, { context });
}

/** The best way to verify here. Whatever is no key or no signature is not good. */
export async function verifier(): Promise<Verify> {
  const isNative = await nativeKeyOf(new Uint8Array(SEED_BYTES)) !== null;
  return isNative ? verifiedNatively : verifiedByLibrary;
}

export const verifiedByLibrary: Verify = async (publicKey, signature, payload, context) => {
  const { lengths } = ml_dsa65;
  if (publicKey.length !== lengths.publicKey) return false;
  if (signature.length !== lengths.signature) return false;
  return ml_dsa65.verify(signature, payload, publicKey, { context });
};

const verifiedNatively: Verify = async (publicKey, signature, payload, context) => {
  const key = await imported("raw-public", publicKey, "verify");
  if (key === null) return false;
  const algorithm: WithContext = { name: NAME, context };
  return crypto.subtle.verify(
    algorithm, key, signature as BufferSource, payload as BufferSource,
  );
};

async function imported(
  format: string, key: Uint8Array, usage: KeyUsage,
): Promise<CryptoKey | null> {
  const importKey = crypto.subtle.importKey.bind(crypto.subtle) as unknown as Import;
  try {
    return await importKey(format, key, NAME, false, [usage]);
  } catch (fault) {
    // a browser without it: an unknown algorithm, or an unknown format; or bytes that are no key
    if (fault instanceof TypeError || fault instanceof DOMException) return null;
    throw fault;
  }
}
