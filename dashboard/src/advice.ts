/** What events mean and what to do: the daemon's own table, which its other tools read, too. */

import { useEffect, useState } from "preact/hooks";
import { get } from "./asking";
import { textIn, type Told } from "./facts";
import { sentence } from "./words";

export interface Row {
  readonly means: string;
  readonly do: string; // empty: nothing
}

export interface Advice {
  readonly events: Readonly<Record<string, Row>>;
  readonly refusals: Readonly<Record<string, Row>>;
}

export const NO_ADVICE: Advice = { events: {}, refusals: {} };
const TROUBLES_MAX = 4;
const LATELY_S = 600;
const OFTEN = 3; // of what needs nothing while it is rare

export interface Trouble {
  readonly name: string;
  readonly times: number;
  readonly means: string;
  readonly remedy: string;
}

/** Both sentences of an event's row; empty where the daemon has none, or has not told it yet. */
export function adviceOn(name: string, advice: Advice): string {
  const row = own(advice.events, name);
  return row === undefined ? "" : `${sentence(row.means)} ${sentence(row.do)}`.trim();
}

/** What of the last minutes has something to be done about it, the newest first, each once. */
export function troublesOf(events: readonly Told[], advice: Advice, nowS: number): Trouble[] {
  const found = new Map<string, Trouble>();
  for (const event of [...events].reverse()) {
    if (nowS - event.ts > LATELY_S) break;
    const row = rowOf(event, advice);
    if (row === undefined || row.do === "") continue;
    found.set(row.means, {
      name: event.name.replaceAll("_", " "), times: (found.get(row.means)?.times ?? 0) + 1,
      means: sentence(row.means), remedy: sentence(row.do),
    });
  }
  return [...found.values()]
    .filter(({ times, remedy }) => times >= OFTEN || !remedy.startsWith("Nothing"))
    .slice(0, TROUBLES_MAX);
}

/** By the reason of a refusal, which is a word of the program's own; else by the name. */
function rowOf(event: Told, advice: Advice): Row | undefined {
  const reason = event.name === "peer_refused" ? textIn(event, "reason") : "";
  return own(advice.refusals, reason) ?? own(advice.events, event.name);
}

function own(rows: Readonly<Record<string, Row>>, key: string): Row | undefined {
  return Object.hasOwn(rows, key) ? rows[key] : undefined;
}

/** Asked for when the page has found its daemon, and when it has found it again. */
export function useAdvice(token: string | null, isFound: boolean): Advice {
  const [advice, setAdvice] = useState(NO_ADVICE);
  useEffect(() => {
    if (token === null || !isFound) return;
    let isOver = false;
    void get<Advice>("/v1/advice", token)
      .then(({ answer }) => { if (!isOver) setAdvice(answer); })
      .catch(() => undefined); // an older daemon has none, and one that is gone is asked again
    return () => { isOver = true; };
  }, [token, isFound]);
  return advice;
}
