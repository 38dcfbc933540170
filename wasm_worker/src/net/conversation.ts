/**
 * One session at a gateway, from its challenge to its end, whatever carries the bytes.
 *
 *   challenged -challenge: hello-> greeting -welcome-> open -no | leave | silence | end-> ended
 *
 * Invariants: nothing is said before the challenge nor after the end; a verdict is said only of a
 * task that came in this session and was neither answered nor dropped; the end is told once.
 */

import type { Digest } from "../blake3";
import type { Canonical, GivenTask, Lifetime } from "../protocol";
import { encode } from "./canonical";
import { FrameReader, framed, Oversize } from "./framing";
import type { VolunteerKey } from "./keys";
import {
  beat, drop, heard, hello, HELLO_CONTEXT, helloBytes, Malformed, PROTOCOL_VERSION, ready,
  recordBytes, unhex, verdict, VERDICT_CONTEXT, verdictBytes, type Heard,
} from "./messages";
import { Outbox } from "./outbox";

export const BEAT_MS = 10_000;
export const SILENT_MS = 30_000; // three beats of the gateway

/** What this side is, and whom it talks to. */
export interface Parties {
  readonly chainId: Uint8Array;
  readonly gateway: Uint8Array; // node id
  readonly peerId: string; // ours
  readonly key: VolunteerKey;
  readonly digest: Digest;
  readonly kinds: readonly string[];
  readonly words: string; // the page's version
  readonly nowS: () => number; // Unix time
}

export interface Line {
  send(bytes: Uint8Array): void;
  close(): void;
}

export type Told =
  | { readonly type: "joined"; readonly name: Uint8Array; readonly lifetime: Lifetime }
  | { readonly type: "task"; readonly task: GivenTask }
  | {
    readonly type: "taken"; readonly task: string; readonly agreed: boolean | null;
    readonly lifetime: Lifetime;
  }
  | { readonly type: "ended"; readonly reason: string; readonly words: string };

export class Conversation {
  readonly #parties: Parties;
  readonly #line: Line;
  readonly #tell: (told: Told) => void;
  readonly #frames = new FrameReader();
  readonly #outbox: Outbox;
  readonly #inHand = new Map<string, string>(); // kinds of tasks, by id
  #state: "challenged" | "greeting" | "open" | "ended" = "challenged";
  #session = new Uint8Array();
  #heardMs = performance.now();
  #saidMs = performance.now();
  #beats = 0;
  #order: Promise<void> = Promise.resolve(); // a signature takes its time; order is kept
  readonly #clock: ReturnType<typeof setInterval>;

  constructor(parties: Parties, line: Line, tell: (told: Told) => void) {
    this.#parties = parties;
    this.#line = line;
    this.#tell = tell;
    this.#outbox = new Outbox((frame) => line.send(frame));
    this.#clock = setInterval(() => this.#tick(), BEAT_MS / 5);
  }

  /** More bytes of the gateway's. */
  hear(bytes: Uint8Array): void {
    this.#heardMs = performance.now();
    this.#inOrder(async () => {
      for (const payload of this.#frames.push(bytes)) await this.#take(heard(payload));
    });
  }

  /** The line has ended. */
  gone(): void {
    this.#inOrder(async () => this.#end("lost", "the gateway has hung up, or the network has"));
  }

  ready(count: number, kinds: readonly string[]): void {
    if (this.#state === "open") this.#say(ready(count, kinds));
  }

  /** What is of an earlier session, or was dropped meanwhile, is not said. */
  verdict(task: string, result: readonly Canonical[], spentMs: number): void {
    this.#inOrder(async () => {
      const kind = this.#inHand.get(task);
      if (kind === undefined || this.#state !== "open") return;
      this.#inHand.delete(task);
      const { chainId, gateway, key, digest } = this.#parties;
      const signed = verdictBytes(
        chainId, gateway, this.#session, task, kind, digest(encode(result)),
      );
      this.#say(verdict(task, result, spentMs, await key.sign(signed, VERDICT_CONTEXT)));
    });
  }

  drop(task: string): void {
    if (this.#inHand.delete(task) && this.#state === "open") this.#say(drop(task));
  }

  /** Gives back what is in hand, and ends. */
  leave(): void {
    for (const task of [...this.#inHand.keys()]) this.drop(task);
    this.#end("left", "this page has left");
  }

  async #take(message: Heard): Promise<void> {
    switch (message.type) {
      case "challenge":
        return this.#greet(message.version, message.nonce);
      case "welcome":
        this.#expect("greeting", message.type);
        this.#state = "open";
        this.#session = new Uint8Array(message.session);
        this.#tell({ type: "joined", name: message.name, lifetime: message.lifetime });
        return;
      case "task":
        this.#expect("open", message.type);
        this.#inHand.set(message.task.id, message.task.kind);
        this.#tell(message);
        return;
      case "taken":
        this.#expect("open", message.type);
        this.#tell(message);
        return;
      case "no":
        this.#end(message.reason, message.words);
        return;
      case "beat":
    }
  }

  async #greet(version: number, nonce: Uint8Array): Promise<void> {
    this.#expect("challenged", "challenge");
    this.#state = "greeting";
    const { chainId, gateway, peerId, key, digest, kinds, words, nowS } = this.#parties;
    if (version !== PROTOCOL_VERSION) {
      this.#end("version", `the gateway speaks ${version}, the page ${PROTOCOL_VERSION}`);
      return;
    }
    const issuedS = Math.floor(nowS());
    const record = recordBytes({
      chainId, publicKey: key.publicKey, peerId, sequence: issuedS, issuedS, kinds, words,
    });
    const signed = helloBytes(gateway, nonce, digest(record));
    this.#say(hello(chainId, record, await key.sign(signed, HELLO_CONTEXT)));
  }

  #expect(state: "challenged" | "greeting" | "open", what: string): void {
    if (this.#state !== state) throw new Malformed(`a ${what} came out of turn`);
  }

  #say(payload: Uint8Array): void {
    if (this.#state === "ended") return;
    this.#saidMs = performance.now();
    if (!this.#outbox.say(framed(payload))) this.#end("too-fast", "too much waits to be said");
  }

  #tick(): void {
    const nowMs = performance.now();
    if (nowMs - this.#heardMs >= SILENT_MS) {
      this.#end("silent", `the gateway has said nothing for ${SILENT_MS / 1000} s`);
    } else if (this.#state === "open" && nowMs - this.#saidMs >= BEAT_MS) {
      this.#say(beat(this.#beats++));
    }
  }

  #inOrder(act: () => Promise<void>): void {
    this.#order = this.#order.then(act).catch((fault: unknown) => {
      if (!(fault instanceof Malformed) && !(fault instanceof Oversize)) {
        // a fault of ours: it goes to whoever holds this worker, after the session
        reportError(fault);
        this.#end("net-worker", String(fault));
        return;
      }
      this.#end(fault instanceof Oversize ? "oversize" : "malformed", fault.message);
    });
  }

  #end(reason: string, words: string): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    clearInterval(this.#clock);
    this.#outbox.close();
    this.#line.close();
    this.#tell({ type: "ended", reason, words });
  }
}

/** The ids of a gateway that the conversation needs, from hex. */
export function idsOf(
  told: { readonly chainId: string; readonly nodeId: string },
): Pick<Parties, "chainId" | "gateway"> {
  return { chainId: unhex(told.chainId), gateway: unhex(told.nodeId) };
}
