import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Patience } from "../src/patience";

let reasons: string[];
let patience: Patience;

beforeEach(() => {
  vi.useFakeTimers();
  reasons = [];
  patience = new Patience((reason) => reasons.push(reason));
});

afterEach(() => {
  vi.useRealTimers();
});

test("a silent worker is given up, with a reason", () => {
  patience.waitFor("task");
  vi.advanceTimersByTime(119_999);
  expect(reasons).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(reasons).toEqual(["The worker has said nothing for 2 minutes"]);
});

test("one that answers is not, and each wait begins anew", () => {
  patience.waitFor("load");
  vi.advanceTimersByTime(599_000);
  patience.waitFor("task");
  vi.advanceTimersByTime(119_000);
  patience.end();
  vi.advanceTimersByTime(3_600_000);
  expect(reasons).toEqual([]);
});
