import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Sent } from "../src/event_reader";
import { follow, PAUSE_MS_MAX } from "../src/following";

const asked: RequestInit[] = [];
let answers: (() => Response | Promise<Response>)[] = [];

function streaming(...texts: string[]): () => Response {
  return () => new Response(new ReadableStream({
    start(controller) {
      for (const text of texts) controller.enqueue(new TextEncoder().encode(text));
      controller.close();
    },
  }));
}

function failing(): Response {
  throw new TypeError("nobody there");
}

function lastIdOf(init: RequestInit | undefined): string | undefined {
  return (init?.headers as Record<string, string> | undefined)?.["Last-Event-ID"];
}

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = 0;
  vi.stubGlobal("fetch", async (_path: string, init: RequestInit) => {
    asked.push(init);
    return await (answers.shift() ?? failing)();
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function heard(): { sent: Sent[]; pausesMs: number[]; ended: number[]; stop: AbortController } {
  const stop = new AbortController();
  const found = { sent: [] as Sent[], pausesMs: [] as number[], ended: [] as number[], stop };
  void follow("1a".repeat(32), {
    onOpen: () => undefined,
    onSent: (sent) => found.sent.push(sent),
    onAway: (_why, againInMs) => found.pausesMs.push(againInMs),
    onEnd: (status) => found.ended.push(status),
  }, stop.signal, () => 0.5);
  return found;
}

describe("the daemon's events", () => {
  it("go on from the last one that was heard", async () => {
    answers = [
      streaming("id: x-1\ndata: 1\n\nid: x-2\ndata: 2\n\n"), streaming("id: x-3\ndata: 3\n\n"),
    ];
    const found = heard();
    await vi.advanceTimersByTimeAsync(1_500);
    found.stop.abort();
    expect(found.sent.map(({ data }) => data)).toEqual(["1", "2", "3"]);
    expect([lastIdOf(asked[0]), lastIdOf(asked[1])]).toEqual([undefined, "x-2"]);
  });

  it("are asked for more and more seldom while nobody answers, and soon after that", async () => {
    answers = Array.from({ length: 8 }, () => failing);
    const found = heard();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(found.pausesMs.slice(0, 6)).toEqual([1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    expect(Math.max(...found.pausesMs)).toBe(PAUSE_MS_MAX);
    answers = [streaming("data: 1\n\n")];
    found.pausesMs.length = 0;
    await vi.advanceTimersByTimeAsync(PAUSE_MS_MAX);
    expect(found.pausesMs[0]).toBe(1_000);
    found.stop.abort();
  });

  it.each([401, 404])("are not asked for again after %i", async (status) => {
    answers = [() => new Response("no", { status })];
    const found = heard();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(found.ended).toEqual([status]);
    expect(asked).toHaveLength(1);
  });

  it("are asked for anew when the line is silent for too long", async () => {
    answers = [() => new Response(new ReadableStream({ start: () => undefined }))];
    const found = heard();
    await vi.advanceTimersByTimeAsync(50_000);
    expect(found.pausesMs.length).toBeGreaterThan(0);
    found.stop.abort();
  });
});
