/** What a person is told beside each setting, and which of them this browser can have. */

import { kindsFor, KINDS } from "./kinds";
import type { Machine } from "./machine";
import type { Settings, Surroundings } from "./state";
import { sentence } from "./words";

export interface SettingsView {
  readonly duty: string;
  readonly workers: string;
  readonly gpu: Choice;
  readonly battery: Choice;
  readonly busy: Choice;
  readonly saver: string;
  readonly kept: string;
}

export interface Choice {
  readonly isPossible: boolean;
  readonly words: string;
}

export function settingsView(
  settings: Settings, surroundings: Surroundings, machine: Machine, isKept: boolean,
): SettingsView {
  const { onBattery, isBusy } = surroundings;
  return {
    duty: `${settings.dutyPercent} %`,
    workers: workersWords(settings.workers, machine.cores),
    gpu: gpuChoice(machine),
    battery: told(
      machine.tellsBattery, onBattery ? "It runs on battery now." : "It is at the mains now.",
      "This browser does not tell what the computer runs on.",
    ),
    busy: told(
      machine.tellsPressure, isBusy ? "It is busy now." : "It is not busy now.",
      "This browser does not tell how busy the computer is.",
    ),
    saver: saverWords(settings.savesData),
    kept: isKept ? "" : "This browser does not let the page keep these for the next visit.",
  };
}

function workersWords(workers: number, cores: number): string {
  const each = workers === 1 ? "One thread computes, with about 100 MB of memory."
    : "Two threads compute, each with about 100 MB of memory and its own practice.";
  const most = "A gateway gives nobody more than two pieces at once.";
  return workers >= cores ? `${each} This computer has ${cores} of them.` : `${each} ${most}`;
}

function gpuChoice({ adapter }: Machine): Choice {
  if (adapter === null) return { isPossible: false, words: "Looking for an adapter." };
  if (!adapter.isReal) return { isPossible: false, words: `Not here: ${adapter.words}.` };
  return {
    isPossible: true,
    words: `${sentence(adapter.name)} It is used only if it gives the same bits. Workers start `
      + "anew.",
  };
}

function told(isTold: boolean, words: string, otherwise: string): Choice {
  return isTold ? { isPossible: true, words } : { isPossible: false, words: otherwise };
}

function saverWords(savesData: boolean): string {
  const spared = KINDS.filter(({ isHeavy }) => isHeavy).map(({ title }) => title.toLowerCase());
  const count = kindsFor(true, []).length;
  const list = `${spared.slice(0, -1).join(", ")} and ${spared.at(-1)}`;
  return savesData
    ? `Only ${count} of ${KINDS.length} kinds are asked for: nothing of ${list}.`
    : `Pieces of ${list} come with up to 16 MB each.`;
}
