/** The page itself: shows the session's state, and carries out its effects. It decides nothing. */

import { keep, keeperOf, recall, defaults } from "./choices";
import { ComputeLink } from "./compute_link";
import { KNOWN_ANSWERS, byteGpt, parameterCount } from "./known_answers";
import { Watch, adapterOf, type Machine } from "./machine";
import { NetLink } from "./net_link";
import { OneTab } from "./one_tab";
import { inWords } from "./protocol";
import { next } from "./session";
import { settingsView } from "./settings_view";
import { element, showLegend, showLines, showMap, showPractice, showView, write } from "./show";
import { idle, type Effect, type Event, type Settings, type State, type Timer } from "./state";
import { connectionOf, keyOf, mapOf, practiceRow, tilesOf, versionOf } from "./tables";
import { viewOf } from "./view";

const SECOND_MS = 1_000;
const SAVED_MS = 60_000; // a browser may ask where to, first
const BOXES = [
  ["gpu", "gpu"], ["battery", "sparesBattery"], ["busy", "sparesBusy"], ["saver", "savesData"],
] as const;

const keeper = keeperOf(window);
const network = (navigator as { connection?: { saveData?: boolean } }).connection;
const watch = new Watch((surroundings) => happen({ type: "surroundings", surroundings }));
const tab = new OneTab((type) => happen({ type }));
const compute = new ComputeLink((slot, said) => happen({ type: "worker", slot, said }));
const net = new NetLink(
  (message) => happen({ type: "net", message }),
  (words) => happen({ type: "net-died", words }),
);
const timers = new Map<Timer, ReturnType<typeof setTimeout>>();

let state: State = idle(
  KNOWN_ANSWERS.map(({ digest }) => digest),
  recall(keeper, defaults(network?.saveData ?? false)), watch.now,
);
let machine: Machine = {
  tellsBattery: true, tellsPressure: true, cores: navigator.hardwareConcurrency, adapter: null,
};
let isKept = true;

function happen(event: Event): void {
  let effects: readonly Effect[];
  try {
    [state, effects] = next(state, event, Date.now());
  } catch (error) {
    [state, effects] = next(state, { type: "fault", words: inWords(error) }, Date.now());
  }
  effects.forEach(carryOut);
  show();
}

function carryOut(effect: Effect): void {
  switch (effect.type) {
    case "claim":
      return tab.claim(effect.byForce);
    case "release":
      return tab.release();
    case "spawn":
      return compute.spawn(effect.slot, effect.matmul);
    case "spawn-early":
      return compute.spawnEarly();
    case "kill":
      return compute.kill(effect.slot);
    case "practise":
      return compute.practise(effect.slot, effect.piece);
    case "net":
      return net.tell(effect.message);
    case "compute":
      return compute.compute(effect.slot, effect.task);
    case "wake":
      clearTimeout(timers.get(effect.timer));
      timers.set(effect.timer, setTimeout(() => {
        happen({ type: "woken", timer: effect.timer });
      }, effect.inMs));
      return;
    case "sleep":
      timers.forEach(clearTimeout);
      return timers.clear();
    case "save":
      return save(effect.file, effect.name);
  }
}

function save(file: string, name: string): void {
  const address = URL.createObjectURL(new Blob([file], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), SAVED_MS);
}

function parametersOf(piece: number): number {
  const known = KNOWN_ANSWERS[piece];
  return known === undefined ? 0 : parameterCount(byteGpt(known));
}

let ticking: ReturnType<typeof setInterval> | undefined;

function show(): void {
  const view = viewOf(state, Date.now());
  showView(view);
  showLines("tiles", tilesOf(state));
  showMap(mapOf(state));
  showLines("connection", connectionOf(state));
  showPractice(state.practice.map((each) => practiceRow(each, parametersOf)));
  const version = versionOf(state);
  showLines("version", version);
  element("no-version").hidden = version.length > 0;
  showSettings();
  const key = keyOf(state);
  write("key-words", key.words);
  for (const id of ["export", "erase"]) element<HTMLButtonElement>(id).disabled = key.isBusy;
  // some words depend on the time
  clearInterval(ticking);
  if (state.run.at === "on") ticking = setInterval(show, SECOND_MS);
}

function showSettings(): void {
  const { settings, surroundings } = state;
  const view = settingsView(settings, surroundings, machine, isKept);
  write("duty-words", view.duty);
  write("workers-words", view.workers);
  write("saver-words", view.saver);
  write("kept-words", view.kept);
  element<HTMLInputElement>("duty").value = `${settings.dutyPercent}`;
  element<HTMLSelectElement>("workers").value = `${settings.workers}`;
  for (const [id, name] of BOXES) {
    const box = element<HTMLInputElement>(id);
    box.checked = settings[name];
    if (id === "saver") continue;
    write(`${id}-words`, view[id].words);
    box.disabled = !view[id].isPossible;
  }
}

function choose(change: Partial<Settings>): void {
  const settings = { ...state.settings, ...change };
  isKept = keep(keeper, settings);
  happen({ type: "settings", settings });
}

function listen(): void {
  const onClick = (id: string, act: () => void): void => {
    element(id).addEventListener("click", act);
  };
  onClick("start", () => happen({ type: state.run.at === "on" ? "hurry" : "start" }));
  onClick("pause", () => {
    happen({ type: state.run.at === "on" && state.run.isPaused ? "resume" : "pause" });
  });
  onClick("finish", () => happen({ type: "finish" }));
  onClick("export", () => happen({ type: "export" }));
  const dialog = element<HTMLDialogElement>("erasing");
  onClick("erase", () => dialog.showModal());
  onClick("keep-key", () => dialog.close());
  onClick("erase-key", () => {
    dialog.close();
    happen({ type: "erase" });
  });
  const onChange = (id: string, change: (value: string) => Partial<Settings>): void => {
    const control = element<HTMLInputElement | HTMLSelectElement>(id);
    control.addEventListener("change", () => choose(change(control.value)));
  };
  onChange("duty", (value) => ({ dutyPercent: Number(value) }));
  onChange("workers", (value) => ({ workers: Number(value) }));
  for (const [id, name] of BOXES) {
    onChange(id, () => ({ [name]: element<HTMLInputElement>(id).checked }));
  }
  element("duty").addEventListener("input", () => {
    write("duty-words", `${element<HTMLInputElement>("duty").value} %`);
  });
  addEventListener("pagehide", () => happen({ type: "finish" }));
  addEventListener("online", () => happen({ type: "hurry" }));
}

async function look(): Promise<void> {
  const told = await watch.start();
  machine = { ...machine, ...told, adapter: await adapterOf(navigator.gpu) };
  show();
}

listen();
showLegend();
show();
void look();
