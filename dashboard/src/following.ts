/**
 * Follows the daemon's events for as long as the page is open.
 *
 *     connecting --answered--> live --broken, or silent--> away --pause--> connecting, from where
 *     it was
 *
 * The pause grows from one second to fifteen, and is drawn by lot, so that many pages of one daemon
 * do not come back at once.
 */

import { EventReader, type Sent } from "./event_reader";

export const PATH = "/v1/events";
const TAIL = 500; // of what was before: some ten rounds
const PAUSE_MS_MIN = 1_000;
export const PAUSE_MS_MAX = 15_000;
const SILENT_MS_MAX = 45_000; // the daemon says something more often, be it a comment

export interface Listener {
  onOpen(): void;
  onSent(sent: Sent): void;
  /** It tries again by itself, then. */
  onAway(why: string, againInMs: number): void;
  /** It does not try again: the token is refused, or this daemon has no events. */
  onEnd(status: number): void;
}

/** Until `stop` is aborted. `chance` gives numbers from 0 to 1. */
export async function follow(
  token: string, listener: Listener, stop: AbortSignal, chance: () => number = Math.random,
): Promise<void> {
  let last: string | null = null;
  let pauseMs = PAUSE_MS_MIN;
  while (!stop.aborted) {
    let why = "the daemon does not answer";
    try {
      const response = await open(token, last, stop);
      if (response.status === 401 || response.status === 404) {
        listener.onEnd(response.status);
        return;
      }
      if (response.ok && response.body !== null) {
        listener.onOpen();
        pauseMs = PAUSE_MS_MIN;
        why = "the daemon closed the connection";
        for await (const sent of sentBy(response.body, stop)) {
          last = sent.id ?? last;
          listener.onSent(sent);
        }
      } else {
        why = (await response.text()).trim() || `the daemon answers ${response.status}`;
        if (response.status === 400) last = null; // it does not know where we were
      }
    } catch {
      // whatever broke it: it is opened anew
    }
    if (stop.aborted) return;
    const againInMs = pauseMs * (0.75 + chance() / 2);
    listener.onAway(why, againInMs);
    await pause(againInMs, stop);
    pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX);
  }
}

function open(token: string, last: string | null, stop: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = {
    Authorization: `Bearer ${token}`, Accept: "text/event-stream",
  };
  if (last !== null) headers["Last-Event-ID"] = last;
  return fetch(last === null ? `${PATH}?tail=${TAIL}` : PATH, {
    headers, signal: stop, cache: "no-store", credentials: "omit", redirect: "error",
  });
}

async function* sentBy(body: ReadableStream<Uint8Array>, stop: AbortSignal): AsyncGenerator<Sent> {
  const reader = body.getReader();
  const events = new EventReader(), text = new TextDecoder();
  try {
    while (!stop.aborted) {
      const piece = await within(SILENT_MS_MAX, reader.read());
      if (piece.done) return;
      yield* events.push(text.decode(piece.value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

async function within<T>(limitMs: number, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("silent for too long")), limitMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
