import { describe, expect, it } from "vitest";
import { EventReader } from "../src/event_reader";

const TEXT = ": hello\n\nid: a-1\nevent: decision\ndata: {\"ts\":1}\n\n"
  + "id: a-2\r\nevent: lesson\r\ndata: one\r\ndata: two\r\n\r\ndata:bare\n\n";

const EVENTS = [
  { id: "a-1", event: "decision", data: "{\"ts\":1}" },
  { id: "a-2", event: "lesson", data: "one\ntwo" },
  { id: null, event: "message", data: "bare" },
];

describe("server-sent events", () => {
  it("are the same wherever the pieces end", () => {
    for (let size = 1; size <= TEXT.length; size += 1) {
      const reader = new EventReader();
      const found = [];
      for (let at = 0; at < TEXT.length; at += size) {
        found.push(...reader.push(TEXT.slice(at, at + size)));
      }
      expect(found, `pieces of ${size}`).toEqual(EVENTS);
    }
  });

  it("come once they are whole, and not before", () => {
    const reader = new EventReader();
    expect(reader.push("data: x\n")).toEqual([]);
    expect(reader.push("\n")).toHaveLength(1);
  });

  it("do not fill the memory of the page with a line that never ends", () => {
    const reader = new EventReader();
    expect(() => reader.push("x".repeat(1_000_001))).toThrow("without an end");
  });
});
