/** Questions to the daemon of this page's own address, and what may come of them. */

const ANSWERED_WITHIN_MS = 15_000; // the daemon itself gives up after ten seconds

/** It answered, and not what was asked for: a `status` of HTTP, and its words. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, words: string) {
    super(words.trim() || `HTTP ${status}`);
    this.status = status;
  }
}

/** Nobody answered: the daemon is gone, or has no time. */
export class NotReached extends Error {}

export interface Answered<T> {
  readonly answer: T;
  readonly aheadS: number; // of the daemon's clock, this browser's; 0 where nobody could tell
}

/** Throws Refused and NotReached. */
export async function get<T>(path: string, token: string): Promise<Answered<T>> {
  const response = await ask(path, token, {});
  const aheadS = aheadBy(response.headers.get("Date"), Date.now());
  return { answer: await response.json() as T, aheadS };
}

/** `date`: as the daemon tells it, in whole seconds. So two of them are no difference. */
export function aheadBy(date: string | null, nowMs: number): number {
  const aheadS = (nowMs - Date.parse(date ?? "")) / 1_000;
  return Math.abs(aheadS) > 2 ? aheadS : 0;
}

/** Something to be done, by the admin token. Throws Refused and NotReached. */
export async function order<T>(path: string, adminToken: string, body: object): Promise<T> {
  const asked = await ask(path, adminToken, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  });
  return await asked.json() as T;
}

async function ask(path: string, token: string, more: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...more,
      headers: { ...more.headers, Authorization: `Bearer ${token}` },
      cache: "no-store", credentials: "omit", redirect: "error",
      signal: AbortSignal.timeout(ANSWERED_WITHIN_MS),
    });
  } catch {
    throw new NotReached("the daemon does not answer");
  }
  if (!response.ok) throw new Refused(response.status, await response.text().catch(() => ""));
  return response;
}
