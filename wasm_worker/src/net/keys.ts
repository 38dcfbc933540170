/**
 * The volunteer's key: made once in this browser, and kept in its IndexedDB until it is erased.
 *
 * What signs is a key of the browser's that nobody can read. Its seed lies beside it, sealed under
 * a second key that nobody can read either: it is opened to export it, and in every session where
 * the browser cannot sign by itself.
 */

import { nativeKeyOf, publicKeyOf, SEED_BYTES, signerBy, signerOf, type Sign } from "../ml_dsa";

const DATABASE = "daa-compute";
const STORE = "keys";
const THE_KEY = "volunteer";
const SEAL = "AES-GCM";
const SEAL_IV_BYTES = 12;
// PrivateKeyInfo of ML-DSA-65 whose key is the seed alone (RFC 9881, 6)
const PKCS8_HEAD = [
  0x30, 0x34, 0x02, 0x01, 0x00, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04,
  0x03, 0x12, 0x04, 0x22, 0x80, 0x20,
];
const PEM_COLUMNS = 64;

/** The browser does not let the page keep its key. */
export class StorageRefused extends Error {
  override readonly name = "StorageRefused";
}

/** The browser has no cryptography for this page, as it has none for pages that come over http. */
export class NoCrypto extends Error {
  override readonly name = "NoCrypto";
}

export interface VolunteerKey {
  readonly publicKey: Uint8Array;
  readonly sign: Sign;
}

interface Stored {
  readonly publicKey: Uint8Array;
  readonly native: CryptoKey | null;
  readonly sealer: CryptoKey;
  readonly sealIv: Uint8Array;
  readonly sealedSeed: Uint8Array;
}

/** The key of this browser; a new one the first time. Throws StorageRefused or NoCrypto. */
export async function volunteerKey(): Promise<VolunteerKey> {
  const subtle = (globalThis.crypto as Crypto | undefined)?.subtle as SubtleCrypto | undefined;
  if (subtle === undefined) throw new NoCrypto("a page that came over http has no cryptography");
  const stored = await held() ?? await made();
  const { publicKey, native } = stored;
  return { publicKey, sign: native === null ? signerOf(await opened(stored)) : signerBy(native) };
}

/** The key's public part and the key as PEM, which is all of it; null where there is none. */
export async function exported(): Promise<{ publicKey: Uint8Array; pem: string } | null> {
  const stored = await held();
  if (stored === null) return null;
  return { publicKey: stored.publicKey, pem: pemOf(await opened(stored)) };
}

export async function erased(): Promise<void> {
  await inStore("readwrite", (store) => store.delete(THE_KEY));
}

export function pemOf(seed: Uint8Array): string {
  const packed = btoa(String.fromCharCode(...PKCS8_HEAD, ...seed));
  const lines = packed.match(new RegExp(`.{1,${PEM_COLUMNS}}`, "g")) ?? [];
  return ["-----BEGIN PRIVATE KEY-----", ...lines, "-----END PRIVATE KEY-----", ""].join("\n");
}

async function made(): Promise<Stored> {
  const seed = crypto.getRandomValues(new Uint8Array(SEED_BYTES));
  const sealIv = crypto.getRandomValues(new Uint8Array(SEAL_IV_BYTES));
  const sealer = await crypto.subtle.generateKey(
    { name: SEAL, length: 256 }, false, ["encrypt", "decrypt"],
  );
  const sealed = await crypto.subtle.encrypt({ name: SEAL, iv: sealIv }, sealer, seed);
  const stored: Stored = {
    publicKey: publicKeyOf(seed), native: await nativeKeyOf(seed), sealer, sealIv,
    sealedSeed: new Uint8Array(sealed),
  };
  seed.fill(0);
  await inStore("readwrite", (store) => store.put(stored, THE_KEY));
  return stored;
}

async function held(): Promise<Stored | null> {
  return (await inStore("readonly", (store) => store.get(THE_KEY)) as Stored | undefined) ?? null;
}

async function opened({ sealer, sealIv, sealedSeed }: Stored): Promise<Uint8Array> {
  const algorithm = { name: SEAL, iv: sealIv as BufferSource };
  return new Uint8Array(await crypto.subtle.decrypt(algorithm, sealer, sealedSeed as BufferSource));
}

/** One request in a transaction of its own. Throws StorageRefused. */
async function inStore(
  mode: IDBTransactionMode, ask: (store: IDBObjectStore) => IDBRequest,
): Promise<unknown> {
  try {
    const database = await openedDatabase();
    try {
      const transaction = database.transaction(STORE, mode);
      const request = ask(transaction.objectStore(STORE));
      await new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(transaction.error);
      });
      return request.result;
    } finally {
      database.close();
    }
  } catch (fault) {
    if (fault instanceof DOMException) throw new StorageRefused(fault.message);
    throw fault;
  }
}

function openedDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new DOMException("another tab holds it", "AbortError"));
  });
}
