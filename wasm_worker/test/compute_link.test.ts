import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ComputeLink } from "../src/compute_link";
import type { Said } from "../src/state";

/** A worker that the browser was told to start, and whose script nobody serves. */
class Unserved extends EventTarget {
  postMessage(): void {}

  terminate(): void {}
}

let heard: Said[];
let started: Unserved[];
let link: ComputeLink;

beforeEach(async () => {
  vi.useFakeTimers();
  heard = [];
  started = [];
  vi.stubGlobal("document", { baseURI: "http://127.0.0.1:8080/" });
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("failed")));
  vi.stubGlobal("Worker", class extends Unserved {
    constructor() {
      super();
      started.push(this);
    }
  });
  const { ComputeLink } = await import("../src/compute_link");
  link = new ComputeLink((_, said) => heard.push(said));
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a worker that nobody serves is stranded, and not dead however long that lasts", async () => {
  link.spawn(0, "wasm");
  started[0]!.dispatchEvent(Object.assign(new Event("error"), { message: "" }));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(heard).toEqual([{ type: "stranded" }]);
});

test("a worker that hangs while it loads is dead in the end", async () => {
  link.spawn(0, "wasm");
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(heard).toMatchObject([{ type: "died" }]);
});
