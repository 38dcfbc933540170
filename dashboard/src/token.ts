/**
 * The token that reads. It comes in the part of the address that no browser sends, is kept for this
 * tab alone, and leaves the address at once, so that it is in no history and no screenshot.
 */

const KEPT_AS = "daa-read-token";
const SHAPE = /^[0-9a-f]{64}$/;

export interface Place {
  readonly hash: string;
  readonly pathname: string;
}

/** What is given in that part of an address, whether it may be a token or not; null: nothing is. */
export function givenIn(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("token");
}

/** `clear` takes the token out of the address. A tab that may store nothing asks again. */
export function takeToken(place: Place, storage: Storage | null, clear: () => void): string | null {
  const given = givenIn(place.hash);
  if (given !== null) clear();
  if (given !== null && isToken(given)) {
    keepToken(given, storage);
    return given;
  }
  const kept = storage?.getItem(KEPT_AS) ?? null;
  return kept !== null && isToken(kept) ? kept : null;
}

export function isToken(text: string): boolean {
  return SHAPE.test(text);
}

export function keepToken(token: string | null, storage: Storage | null): void {
  if (token === null) storage?.removeItem(KEPT_AS);
  else storage?.setItem(KEPT_AS, token);
}

/** Null where the browser refuses to store anything. */
export function tabStorage(): Storage | null {
  try {
    return window.sessionStorage;
  } catch {
    return null;
  }
}
