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
  patience.waitFor(120_000);
  vi.advanceTimersByTime(119_999);
  expect(reasons).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(reasons).toEqual(["a worker has said nothing for 2 minutes"]);
});

test("one that answers is not, and each wait begins anew", () => {
  patience.waitFor(600_000);
  vi.advanceTimersByTime(599_000);
  patience.waitFor(120_000);
  vi.advanceTimersByTime(119_000);
  patience.end();
  vi.advanceTimersByTime(3_600_000);
  expect(reasons).toEqual([]);
});

test("a computer that slept gets as much time again", () => {
  patience.waitFor(60_000);
  vi.setSystemTime(Date.now() + 3_600_000); // the clock goes on in sleep, timers do not
  vi.advanceTimersByTime(60_000);
  expect(reasons).toEqual([]);
  vi.advanceTimersByTime(60_000);
  expect(reasons).toEqual(["a worker has said nothing for a minute"]);
});
