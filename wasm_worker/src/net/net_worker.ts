/** The net worker: holds the volunteer's key and the one session, and tells the page of both. */

import { version } from "../../package.json";
import { blake3 } from "../blake3";
import { inWords, type FromNet, type ToNet } from "../protocol";
import { againInMs } from "./coming_back";
import { Conversation, idsOf, type Told } from "./conversation";
import { dialled, type Way } from "./dialling";
import { askedGateway, isSecureAddress, NoWay, type Told as Gateway } from "./gateway";
import { erased, exported, NoCrypto, StorageRefused, volunteerKey } from "./keys";
import { hex } from "./messages";

const WORDS = `daa-page/${version}`;

const DIGITS = 16; // of a name, in the name of a file

/** One attempt to be at the gateway, from `join` to its end. */
class Visit {
  readonly #abort = new AbortController();
  #conversation: Conversation | null = null;
  #isOver = false;
  readonly #over: (reason: string, words: string) => void;
  readonly #worked: () => void;

  constructor(over: (reason: string, words: string) => void, worked: () => void) {
    this.#over = over;
    this.#worked = worked;
  }

  get conversation(): Conversation | null {
    return this.#conversation;
  }

  async begin(kinds: readonly string[]): Promise<void> {
    tell({ type: "joining", step: "keys" });
    const key = await volunteerKey();
    const digest = await blake3();
    if (this.#isOver) return;
    tell({ type: "joining", step: "gateway" });
    const gateway = await askedGateway(self.location.origin);
    if (this.#isOver) return;
    tell({ type: "joining", step: "dial" });
    // what comes before there is a conversation waits for it
    const early: Uint8Array[] = [];
    let isGone = false;
    const way = await dialled(
      gateway.dial,
      (bytes) => void (this.#conversation?.hear(bytes) ?? early.push(bytes)),
      () => void (this.#conversation?.gone() ?? (isGone = true)),
      this.#abort.signal,
    );
    if (this.#isOver) return way.close();
    tell({ type: "joining", step: "hello" });
    this.#conversation = new Conversation(
      {
        ...idsOf(gateway), peerId: way.peerId, key, digest, kinds, words: WORDS,
        nowS: () => Date.now() / 1000,
      },
      way,
      (told) => this.#hear(told, gateway, way),
    );
    for (const bytes of early) this.#conversation.hear(bytes);
    if (isGone) this.#conversation.gone();
  }

  end(reason: string, words: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abort.abort();
    this.#conversation?.leave();
    this.#over(reason, words);
  }

  #hear(told: Told, gateway: Gateway, way: Way): void {
    switch (told.type) {
      case "joined":
        tell({
          type: "joined", name: hex(told.name), lifetime: told.lifetime, peers: way.peers,
          gateway: {
            ...gateway, address: way.address,
            transport: isSecureAddress(way.address) ? "wss" : "ws",
          },
        });
        return;
      case "task": {
        // all its bytes lie in one buffer, that of its frame, which moves along
        const [first] = told.task.blobs;
        postMessage(told satisfies FromNet, first === undefined ? [] : [first.buffer]);
        return;
      }
      case "taken":
        this.#worked();
        tell(told);
        return;
      case "ended":
        this.end(told.reason, told.words);
    }
  }
}

let visit: Visit | null = null;
let attempt = 0; // since the last session in which a verdict was taken

function tell(message: FromNet): void {
  postMessage(message);
}

function join(kinds: readonly string[]): void {
  if (visit !== null) throw new Error("this page has joined already");
  const begun = new Visit(
    (reason, words) => {
      visit = null;
      const pauseMs = againInMs(reason, attempt, Math.random());
      attempt = pauseMs === null ? 0 : attempt + 1;
      tell({ type: "left", reason, words, againInMs: pauseMs });
    },
    () => {
      attempt = 0;
    },
  );
  visit = begun;
  begun.begin(kinds).catch((fault: unknown) => begun.end(reasonOf(fault), inWords(fault)));
}

function reasonOf(fault: unknown): string {
  if (fault instanceof NoWay) return fault.reason;
  if (fault instanceof StorageRefused) return "storage";
  if (fault instanceof NoCrypto) return "crypto";
  reportError(fault); // it is ours, and whoever holds this worker hears of it
  return "net-worker";
}

async function answer(message: ToNet): Promise<void> {
  switch (message.type) {
    case "join":
      return join(message.kinds);
    case "ready":
      return visit?.conversation?.ready(message.count, message.kinds);
    case "verdict":
      return visit?.conversation?.verdict(message.task, message.result, message.spentMs);
    case "drop":
      return visit?.conversation?.drop(message.task);
    case "leave":
      return visit?.end("left", "this page has left");
    case "export": {
      const found = await exported();
      if (found === null) return tell({ type: "failed", reason: "there is no key yet" });
      const name = await nameOf(found.publicKey);
      return tell({
        type: "exported", file: found.pem, name: `daa-volunteer-${name.slice(0, DIGITS)}.pem`,
      });
    }
    case "erase":
      await erased();
      return tell({ type: "erased" });
  }
}

/** As the gateway names it: `blake3("daa/v1/node" || public key)`. */
async function nameOf(publicKey: Uint8Array): Promise<string> {
  const digest = await blake3();
  return hex(digest(Uint8Array.of(...new TextEncoder().encode("daa/v1/node"), ...publicKey)));
}

addEventListener("message", ({ data }: MessageEvent<ToNet>) => {
  answer(data).catch((fault: unknown) => tell({ type: "failed", reason: inWords(fault) }));
});
