import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { PATH } from "../src/following";
import type { State } from "../src/state";
import { Store } from "../src/store";

const FRAME_MS = 16;
const shown: { atMs: number; events: number }[] = [];
const asked: string[] = [];
let history: boolean | null = null; // as the settings have it
let store: Store;
let send: (words: string) => void = () => undefined;

function say(...numbers: number[]): void {
  send(numbers.map((ts) => `event: decision\ndata: {"ts":${ts}}\n\n`).join(""));
}

/** As much of a daemon as these tests ask. */
function answerOf(path: string): object | undefined {
  const settings = [{ key: "history.enabled", value: history, origin: "default", reloads: false }];
  const answers: Record<string, object> = {
    "/v1/checkpoints": { vertices: [] }, "/v1/losses": { heights: [] },
    "/v1/settings": { settings }, "/v1/contributions": { contributions: [] },
  };
  return path === "/openapi.json" ? { paths: answers } : answers[path];
}

beforeEach(async () => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("fetch", async (path: string) => {
    if (path.startsWith(PATH)) {
      return new Response(new ReadableStream({
        start(controller) {
          send = (words) => controller.enqueue(new TextEncoder().encode(words));
        },
      }));
    }
    asked.push(path);
    const answer = answerOf(path);
    return answer === undefined ? new Response("not here", { status: 404 }) : Response.json(answer);
  });
  asked.length = 0;
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

describe("what is drawn", () => {
  const drawn = () => asked.filter((path) => /checkpoints|losses/.test(path)).sort();

  it("is asked for once more when a round is over, and not before", async () => {
    expect(drawn()).toEqual(["/v1/checkpoints", "/v1/losses"]);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(drawn()).toHaveLength(2);
    send('event: round_finalized\ndata: {"ts":1,"height":1,"round":1}\n\n');
    await vi.advanceTimersByTimeAsync(20_000);
    expect(drawn()).toEqual(["/v1/checkpoints", "/v1/checkpoints", "/v1/losses", "/v1/losses"]);
  });
});

describe("the history", () => {
  it("is asked for where the settings do not turn it off", async () => {
    await vi.advanceTimersByTimeAsync(1_000);
    expect(asked).toContain("/v1/contributions");
    store.end();
    asked.length = 0;
    history = false;
    store = new Store("1a".repeat(32), () => undefined);
    store.start();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(asked).toContain("/v1/settings");
    expect(asked).not.toContain("/v1/contributions");
    history = null;
  });
});
