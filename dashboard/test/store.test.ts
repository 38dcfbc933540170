import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { PATH } from "../src/following";
import type { State } from "../src/state";
import { Store } from "../src/store";

const FRAME_MS = 16;
const shown: { atMs: number; events: number }[] = [];
let store: Store;
let say: (...numbers: number[]) => void = () => undefined;

beforeEach(async () => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("fetch", async (path: string) => {
    if (!path.startsWith(PATH)) return new Response("not here", { status: 404 });
    return new Response(new ReadableStream({
      start(controller) {
        say = (...numbers) => controller.enqueue(new TextEncoder().encode(
          numbers.map((ts) => `event: decision\ndata: {"ts":${ts}}\n\n`).join("")));
      },
    }));
  });
  store = new Store("1a".repeat(32), ({ events }: State) => {
    shown.push({ atMs: performance.now(), events: events.length });
  });
  store.start();
  await vi.advanceTimersByTimeAsync(1_000);
  shown.length = 0;
});

afterEach(() => {
  store.end();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("what the page hears", () => {
  it("is shown at once after a pause, all of one piece together", async () => {
    say(1, 2, 3);
    await vi.advanceTimersByTimeAsync(1);
    expect(shown.map(({ events }) => events)).toEqual([3]);
  });

  it("is drawn once a frame while more and more comes", async () => {
    const fromMs = performance.now();
    for (let number = 1; number <= 200; number += 1) {
      say(number);
      await vi.advanceTimersByTimeAsync(1);
    }
    await vi.advanceTimersByTimeAsync(FRAME_MS);
    expect(shown.at(-1)?.events).toBe(200);
    expect(shown.length).toBeLessThanOrEqual(1 + 200 / FRAME_MS + 1);
    expect(shown.length).toBeGreaterThan(10);
    const pausesMs = shown.map(({ atMs }, at) => atMs - (shown[at - 1]?.atMs ?? fromMs));
    expect(Math.max(...pausesMs)).toBeLessThanOrEqual(FRAME_MS + 1);
  });
});
