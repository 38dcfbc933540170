/** What a person can look up in each state: counts, the map of what was checked, who is there. */

import { KINDS, kindsFor } from "./kinds";
import type { Check, Mark, Practised, State } from "./state";
import { grouped, pieces, sentence } from "./words";

export type Line = readonly [label: string, words: string];

export interface MapRow {
  readonly id: string;
  readonly title: string;
  readonly words: string;
  readonly cells: readonly Mark[]; // the newest last, CELLS_SHOWN at most
}

export interface PracticeRow {
  readonly digest: string;
  readonly cells: readonly string[];
}

export const CELLS_SHOWN = 24;
const DIGITS_SHOWN = 16;
const NONE = "\u2013";

export const MARKS: Readonly<Record<Mark, string>> = {
  waiting: "waiting",
  computing: "being computed",
  sent: "sent, not judged yet",
  agreed: "right",
  differed: "another result",
  dropped: "given back",
};

/** Of this visit, of this key at this gateway, and how many of those were right. */
export function tilesOf({ tally, lifetime }: State): readonly Line[] {
  const [ever, agreed, differed] = lifetime ?? [null, 0, 0];
  const judged = agreed + differed;
  return [
    ["This visit", grouped(tally.sent)],
    ["In all", ever === null ? NONE : grouped(ever)],
    ["Right", judged === 0 ? NONE : `${percent(agreed, judged)} %`],
  ];
}

/** Rounded down: 100 only where all of them were. */
function percent(part: number, whole: number): number {
  return Math.floor((100 * part) / whole);
}

export function mapOf({ checks, settings, unfit }: State): readonly MapRow[] {
  const asked = kindsFor(settings.savesData, unfit);
  return KINDS.map(({ id, title }) => {
    const own = checks.filter(({ kind }) => kind === id);
    const cells = own.slice(-CELLS_SHOWN).map(({ mark }) => mark);
    const idle = asked.includes(id) ? "none yet"
      : unfit.includes(id) ? "not possible here" : "not asked for: data saver";
    return { id, title, cells, words: own.length > 0 ? tallyOf(own) : idle };
  });
}

function tallyOf(checks: readonly Check[]): string {
  return (Object.keys(MARKS) as Mark[])
    .map((mark) => [checks.filter((each) => each.mark === mark).length, MARKS[mark]] as const)
    .filter(([count]) => count > 0)
    .map(([count, words]) => `${count} ${words}`)
    .join(", ");
}

export function connectionOf({ net, name }: State): readonly Line[] {
  const me: Line = ["This browser", name === null ? "known once it has joined" : short(name)];
  switch (net.at) {
    case "off":
      return [["Gateway", "not connected"], me];
    case "joining":
      return [["Gateway", "connecting"], me];
    case "away":
    case "shut":
      return [["Gateway", `not connected: ${net.reason}`], me];
    case "joined": {
      const { gateway, peers } = net.joined;
      const [here, most] = gateway.sessions;
      return [
        ["Gateway", `connected to ${short(gateway.nodeId)}`],
        ["Peers", peers === 1 ? "1: the gateway; a page talks to nobody else" : `${peers}`],
        ["Transport", gateway.transport],
        ["Address", gateway.address],
        ["Network", short(gateway.chainId)],
        ["Volunteers", `${here} of ${most} places were taken when this page came`],
        me,
      ];
    }
  }
}

export function versionOf({ version, net }: State): readonly Line[] {
  const lines: Line[] = [];
  if (net.at === "joined") {
    const { site, protocolVersion } = net.joined.gateway;
    lines.push(["Page", site ?? "unknown to the gateway"], ["Protocol", `${protocolVersion}`]);
  }
  if (version !== null) {
    lines.push(
      ["recompute.py", version.recompute], ["pieces.py", version.pieces],
      ["Pyodide", version.pyodide], ["numpy", version.numpy],
      ["Products by", version.matmul],
    );
  }
  return lines;
}

export function practiceRow(
  { slot, piece, digest, agrees, ms }: Practised, parametersOf: (piece: number) => number,
): PracticeRow {
  const cells = [
    `${piece + 1}`, `${slot + 1}`, agrees ? "same" : "different", `${Math.round(ms)} ms`,
    grouped(parametersOf(piece)), digest.slice(0, DIGITS_SHOWN),
  ];
  return { digest, cells };
}

export interface KeyView {
  readonly words: string;
  readonly isBusy: boolean;
}

export function keyOf({ key, name, tally }: State): KeyView {
  switch (key.at) {
    case "quiet":
      return { isBusy: false, words: name === null ? "" : `The name of this key is ${name}.` };
    case "exporting":
      return { isBusy: true, words: "Preparing the file." };
    case "exported":
      return { isBusy: false, words: "The key was saved to a file. Whoever has it can sign as "
        + "this browser." };
    case "erasing":
      return { isBusy: true, words: "Erasing the key." };
    case "erased":
      return { isBusy: false, words: "The key is erased. The next Start makes a new one, which "
        + `nobody knows.${tally.sent > 0 ? ` The gateway still counts ${pieces(tally.sent)} of the `
        + "old one." : ""}` };
    case "failed":
      return { isBusy: false, words: `It did not work. ${sentence(key.words)}` };
  }
}

/** The first digits of a long name: enough to compare by eye. */
export function short(name: string): string {
  return name.slice(0, DIGITS_SHOWN);
}
