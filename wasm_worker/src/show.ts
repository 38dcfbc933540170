/** Writes what a person is told into the page, and touches nothing that has not changed. */

import type { Line, MapRow, PracticeRow } from "./tables";
import { MARKS } from "./tables";
import type { Mark } from "./state";
import type { Buttons, View } from "./view";

export function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as T;
}

export function write(id: string, words: string): void {
  writeInto(element(id), words);
}

function writeInto(at: Element, words: string): void {
  if (at.textContent !== words) at.textContent = words;
}

function made<K extends keyof HTMLElementTagNameMap>(
  tag: K, words = "", className = "",
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.textContent = words;
  element.className = className;
  return element;
}

export function showView(view: View): void {
  document.title = view.title;
  document.body.dataset["phase"] = view.phase;
  document.body.dataset["tone"] = view.tone;
  write("phase", view.chip);
  write("now", view.now);
  write("why", view.why);
  write("said", view.said);
  showProgress(view.progress);
  showButtons(view.buttons);
  const notes = element("notes");
  notes.hidden = view.notes.length === 0;
  replace(notes, view.notes, (words) => made("li", words));
}

function showProgress(progress: View["progress"]): void {
  const bar = element<HTMLProgressElement>("progress");
  bar.classList.toggle("empty", progress === null);
  if (progress === "moving") bar.removeAttribute("value");
  else bar.value = progress ?? 0;
}

function showButtons(buttons: Buttons): void {
  const focused = document.activeElement;
  for (const [id, words] of Object.entries(buttons) as [string, string | null][]) {
    element(id).hidden = words === null;
    if (words !== null) write(id, words);
  }
  // a keyboard keeps its place: from a button that goes to one that comes
  if (focused instanceof HTMLButtonElement && focused.hidden) {
    document.querySelector<HTMLElement>(".card .buttons button:not([hidden])")?.focus();
  }
}

export function showLines(id: string, lines: readonly Line[]): void {
  replace(element(id), lines, ([label, words]) => {
    const line = made("div");
    line.append(made("dt", label), made("dd", words));
    return line;
  });
}

export function showMap(rows: readonly MapRow[]): void {
  replace(element("map"), rows, ({ id, title, words, cells }) => {
    const row = made("tr");
    row.dataset["kind"] = id;
    const head = made("th", title);
    head.scope = "row";
    const told = made("td");
    const squares = made("span", "", "cells");
    squares.append(...cells.map(square));
    told.append(squares, made("span", words, "words"));
    row.append(head, told);
    return row;
  });
}

export function showLegend(): void {
  replace(element("legend"), Object.entries(MARKS), ([mark, words]) => {
    const item = made("li");
    item.append(square(mark as Mark), words);
    return item;
  });
}

/** For the eye; whoever listens has the words beside it. */
function square(mark: Mark): HTMLElement {
  const cell = made("i", "", `cell ${mark}`);
  cell.title = MARKS[mark];
  cell.ariaHidden = "true";
  return cell;
}

export function showPractice(rows: readonly PracticeRow[]): void {
  replace(element("pieces"), rows, ({ digest, cells }) => {
    const row = made("tr");
    row.dataset["digest"] = digest;
    row.append(...cells.map((words) => made("td", words)));
    return row;
  });
}

const shown = new WeakMap<HTMLElement, string>();

function replace<T>(
  parent: HTMLElement, content: readonly T[], make: (each: T) => HTMLElement,
): void {
  const now = JSON.stringify(content);
  if (shown.get(parent) === now) return;
  shown.set(parent, now);
  parent.replaceChildren(...content.map(make));
}
