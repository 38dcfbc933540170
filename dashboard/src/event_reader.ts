/** Server-sent events out of pieces of text, wherever the pieces end (WHATWG HTML, 9.2.6). */

export interface Sent {
  readonly id: string | null; // null: none was given with it
  readonly event: string;
  readonly data: string;
}

const LINE_CHARACTERS_MAX = 1_000_000; // an event has some hundred: beyond it this is none

export class EventReader {
  private rest = "";
  private id: string | null = null;
  private event = "";
  private data: string[] = [];

  /** The events that are whole by now. Throws for what can be none. */
  push(text: string): Sent[] {
    this.rest += text;
    const found: Sent[] = [];
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (end === null) break;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      const sent = this.take(line);
      if (sent !== null) found.push(sent);
    }
    if (this.rest.length > LINE_CHARACTERS_MAX) throw new Error("a line without an end");
    return found;
  }

  private take(line: string): Sent | null {
    if (line === "") return this.whole();
    const [, field = "", value = ""] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (field === "id") this.id = value;
    else if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    return null; // a comment keeps the line open, and says nothing
  }

  private whole(): Sent | null {
    const { id, event, data } = this;
    this.event = "";
    this.data = [];
    this.id = null;
    if (data.length === 0) return null;
    return { id, event: event || "message", data: data.join("\n") };
  }
}
